"""Where a user's `kernelrl serve` and its clients meet. Imports nothing: see `cli.served_check`."""

__all__ = ["SERVICE_SOCKET", "SERVICE_VARIABLE", "UNIX"]

SERVICE_VARIABLE = "KERNELRL_SERVICE"
"""Environment variable with the address of the service, or several separated by commas. Empty: no service is used."""

SERVICE_SOCKET = "service.sock"
"""Socket in the user's lock directory at which `kernelrl serve --unix` listens."""

UNIX = "unix:"
"""Begin of the address of a unix socket."""
