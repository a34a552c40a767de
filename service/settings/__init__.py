"""Every value that an operator may change, in one place: a file per subject.

`settings` joins the subjects, `reading` says where values come from, `names` what they are called.
"""

from service.settings.masking import mask_url
from service.settings.names import CLIENT_VARIABLES, CONFIG_VARIABLE, PREFIX, SECRET_FILES
from service.settings.settings import OF_A_MODEL, Settings
from service.settings.units import MIB

__all__ = [
    "CLIENT_VARIABLES",
    "CONFIG_VARIABLE",
    "MIB",
    "OF_A_MODEL",
    "PREFIX",
    "SECRET_FILES",
    "Settings",
    "mask_url",
]
