"""What is wrong with what the user gave, apart from what is wrong with us."""


class InputError(ValueError):
    """A file, column or option that cannot be used; its message says what to do."""
