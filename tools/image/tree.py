"""A file tree in memory: what a layer of an image holds.

All belongs to root and is of the beginning of time: a tree is the same wherever and whenever it was made.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

FOLDER_MODE, FILE_MODE, PROGRAM_MODE = 0o755, 0o644, 0o755
EPOCH = 0


class TreeError(Exception):
    """Two things want to be in one place."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file if it has content, a link if it has a target, else a folder."""

    mode: int
    content: bytes | None = None
    target: str | None = None

    @property
    def is_folder(self) -> bool:
        return self.content is None and self.target is None


class Tree:
    """Entries by path; a path has no slash at its beginning or end. Folders on the way to an entry need not be given."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def __contains__(self, path: object) -> bool:
        return path in self._entries

    def __getitem__(self, path: str) -> Entry:
        return self._entries[path]

    def items(self) -> Iterator[tuple[str, Entry]]:
        """By path, the folders on the way included: a folder comes before what is in it."""
        every = dict(self._entries)
        for path in self._entries:
            for parent in list(PurePosixPath(path).parents)[:-1]:
                every.setdefault(str(parent), Entry(FOLDER_MODE))
        yield from sorted(every.items())

    def put(self, path: str, entry: Entry) -> None:
        """Raises `TreeError` where something else is already, but for two folders: the latter's mode holds."""
        before = self._entries.get(path, entry)
        if before != entry and not (before.is_folder and entry.is_folder):
            raise TreeError(f"/{path} is given twice, and not the same")
        self._entries[path] = entry

    def put_file(self, path: str, content: bytes | str, mode: int = FILE_MODE) -> None:
        self.put(path, Entry(mode, content=content.encode() if isinstance(content, str) else content))

    def put_link(self, path: str, target: str) -> None:
        self.put(path, Entry(0o777, target=target))

    def put_folder(self, path: str, mode: int = FOLDER_MODE) -> None:
        self.put(path, Entry(mode))

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Contents by path."""
        for path, entry in self.items():
            if entry.content is not None:
                yield path, entry.content

    def write(self, root: Path) -> None:
        """Into a folder, which may have some of it already."""
        for path, entry in self.items():
            at = root / path
            if entry.target is not None:
                at.unlink(missing_ok=True)
                at.symlink_to(entry.target)
            elif entry.content is not None:
                at.write_bytes(entry.content)
                at.chmod(entry.mode)
            else:
                at.mkdir(exist_ok=True, parents=True)
                at.chmod(entry.mode)

    def tar(self) -> bytes:
        """As a tar archive, which is the same for the same tree."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path, entry in self.items():
                archive.addfile(*_member(path, entry))
        return out.getvalue()


def _member(path: str, entry: Entry) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    member = tarfile.TarInfo(path)
    member.mode, member.mtime = entry.mode, EPOCH
    if entry.target is not None:
        member.type, member.linkname = tarfile.SYMTYPE, entry.target
    elif entry.content is not None:
        member.size = len(entry.content)
        return member, io.BytesIO(entry.content)
    else:
        member.type = tarfile.DIRTYPE
    return member, None
