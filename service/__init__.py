"""The service: everything that touches the network, Redis, files and clocks."""
