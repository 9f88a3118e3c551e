"""The commands of ``mqlog``: names, arguments and help; what does the work is in ``work``."""
