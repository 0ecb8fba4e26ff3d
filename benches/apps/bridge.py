"""The least that an application does, for `benches/bridge.rs`: nothing that threads share but its own code, so that
what they cost each other is the bridge's."""


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"Hello, World!"]
