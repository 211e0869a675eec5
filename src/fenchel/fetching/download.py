"""One file over HTTP: resumed where it broke off, checked, and renamed only when whole."""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from fenchel.files import is_html, md5_of
from fenchel.progress import progress

BLOCK = 1 << 20
MEGABYTE = 1e6
TIMEOUT_SECONDS = 20.0
ATTEMPTS = 3


class Interrupted(OSError):
    """The transfer ended early; the `.part` file is kept, so another attempt resumes it."""


def download(
    url: str,
    target: Path,
    *,
    md5: str,
    most_bytes: int,
    timeout: float = TIMEOUT_SECONDS,
    attempts: int = ATTEMPTS,
) -> None:
    """Fetch `url` to `target`, through `target.part`.

    A transfer that breaks off is resumed with an HTTP range request, `attempts` times in all, and
    again by the next call. Wrong content (an HTML page, a wrong md5, too many bytes) is deleted.
    """
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, attempts + 1):
        resumed = part.exists() and part.stat().st_size > 0
        try:
            _transfer(url, part, most_bytes, timeout)
        except Interrupted:
            if attempt == attempts:
                raise
            continue
        if md5_of(part) == md5:
            os.replace(part, target)
            return
        found = md5_of(part)
        part.unlink()
        # A stale partial file may be to blame: only a transfer of the whole is the server's fault.
        if not resumed or attempt == attempts:
            raise ValueError(
                f"{target.name} from {url} must have the md5 {md5}; it has {found}. "
                "The download was deleted; try again, or use another mirror."
            )


def _transfer(url: str, part: Path, most_bytes: int, timeout: float) -> None:
    """Download the rest of the remote file into `part`."""
    offset = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "fenchel", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            if not _continues(response, offset):
                offset = 0
            length = response.headers.get("Content-Length")
            total = offset + int(length) if length and length.isdigit() else None
            if total is not None and total > most_bytes:
                raise ValueError(f"{url} offers {total} bytes; at most {most_bytes} are accepted.")
            with part.open("ab" if offset else "wb") as sink:
                _copy(response, sink, url, offset, total, most_bytes)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and offset:  # nothing left to send: the md5 decides what we have
            return
        raise OSError(f"{url} answered {error.code} {error.reason}.") from error
    except urllib.error.URLError as error:
        raise OSError(f"{url} cannot be reached: {error.reason}.") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise Interrupted(f"{url} broke off: {error}. Run again to resume.") from error
    except ValueError:
        part.unlink(missing_ok=True)
        raise


def _continues(response: http.client.HTTPResponse, offset: int) -> bool:
    """Whether the server really sends what follows `offset`, rather than the whole file."""
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return offset > 0 and response.status == 206 and match is not None and int(match[1]) == offset


def _copy(
    response: http.client.HTTPResponse,
    sink: IO[bytes],
    url: str,
    done: int,
    total: int | None,
    most_bytes: int,
) -> None:
    name = Path(sink.name).name.removesuffix(".part")
    with progress(f"{name} (MB)", total / MEGABYTE if total else None) as bar:
        bar.advance(done / MEGABYTE)
        while block := response.read(BLOCK):
            if done == 0 and is_html(block):
                raise ValueError(f"{url} sent an HTML page instead of {name}. Use another mirror.")
            done += len(block)
            if done > most_bytes:
                raise ValueError(f"{url} sends more than the {most_bytes} bytes accepted.")
            sink.write(block)
            bar.advance(len(block) / MEGABYTE)
    if total is not None and done < total:
        raise Interrupted(
            f"{url} broke off after {done} of {total} bytes. Run again to resume from there."
        )
