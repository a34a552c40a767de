"""The outside view of a service: the client library and the `gmr` command, by HTTP only."""
