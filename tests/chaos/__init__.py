"""A storm over a real service: everything is killed, stopped and damaged; nothing may be lost."""
