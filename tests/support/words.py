"""Words of a command line."""


def last(*words: str) -> list[str]:
    """The words with the last value of each key: a command line refuses a key that is given twice."""
    return list({word.partition("=")[0]: word for word in words}.values())
