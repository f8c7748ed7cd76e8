__version__ = "2.11.0"


class version:
    cuda = "13.0"


class cuda:
    @staticmethod
    def is_available():
        return False
