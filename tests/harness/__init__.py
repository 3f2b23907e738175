"""What the black-box tests share: servers, signed requests, raw sockets, real clients."""
