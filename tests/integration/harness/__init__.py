"""What the integration tests stand on: a strict client, server processes, gates and /proc readings."""
