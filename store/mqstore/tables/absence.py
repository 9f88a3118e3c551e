"""What tables do without, and what they do not: a server that is away was waited for once."""

from mqstore.errors import StoreError, is_of_absence


def raise_absence(error: Exception) -> None:
    """Raise an error that is a server's absence: it was waited for, and is not once more.

    For those who go on without what they could not find out.
    """
    if isinstance(error, StoreError) and is_of_absence(error):
        raise error
