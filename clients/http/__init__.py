"""The client library: the contract as pure functions, and two clients on top."""
