"""What JSON calls the type of a value; error messages say it so."""


def json_type(value: object) -> str:
    """Name of the type; that of Python for what JSON does not have."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return type(value).__name__
