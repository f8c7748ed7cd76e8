__version__ = "2.11.0+cpu"


class version:
    cuda = None
