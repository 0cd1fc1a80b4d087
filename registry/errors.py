"""What can go wrong in the registry. A "no", such as a refused promotion, is a value.

RegistryError
├── FolderError(ValueError)        a model folder is broken, unsafe, or not one
├── ChangedFolderError             it was written while it was being loaded
├── ManifestError(ValueError)      a pair.json says something impossible
├── IncompatibleError(ValueError)  files, draft and release do not belong together
├── NotFoundError(LookupError)     no such pairing, version or alias
├── SourceAwayError                a place that releases come from does not answer
├── DigestError                    stored bytes are not the ones that were registered
└── StoreError                     MLflow is away, or answered what it should not
    ├── ForeignVersionError        a version that Paceline did not register
    └── ForeignModelError(ValueError)  a pairing's name is somebody else's registered model
"""

from __future__ import annotations


class RegistryError(Exception):
    """The root; every message says what was got, what was wanted and what to do."""


class FolderError(RegistryError, ValueError):
    """A model folder is broken, unsafe, or not one."""


class ChangedFolderError(RegistryError):
    """A model folder was written while it was being loaded: what it will be is not known yet."""


class ManifestError(RegistryError, ValueError):
    """A pair.json says something impossible."""


class IncompatibleError(RegistryError, ValueError):
    """Files, draft and release do not belong together."""


class NotFoundError(RegistryError, LookupError):
    """No such pairing, version or alias."""


class SourceAwayError(RegistryError):
    """A place that releases come from does not answer, or not with what it has."""


class DigestError(RegistryError):
    """Stored bytes are not the ones that were registered."""


class StoreError(RegistryError):
    """MLflow is away, or answered what it should not."""


class ForeignVersionError(StoreError):
    """A version that Paceline did not register."""


class ForeignModelError(StoreError, ValueError):
    """The pairing's name is that of a registered model that Paceline did not make."""
