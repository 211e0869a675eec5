"""The published results: `docs/results.md` and parts of other pages, from the CSV files in this folder.

    python results/publish.py collect reproduce    # take over what `fenchel reproduce` left there
    python results/publish.py                      # the same as `make results`

The second makes the tables again from the cells (`cells-*.csv.gz`), then the pages from the tables; nothing
else is needed, and a second run changes nothing. Every number on the pages comes out of a CSV file here;
the words around them are in `templates`.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import calibrating
import hostile
import jinja2
import public_network_checks
import reading
import recovery_checks
import small_network_checks
import tables
import verdicts
from collecting import collect, derived
from reading import HERE, number, row_of, rows_of

from fenchel.files import write_atomically
from fenchel.report.several import LEVEL

ROOT = HERE.parent
DOCS = ROOT / "docs"
PART = re.compile(r"(<!-- (\w+): written by[^>]*-->\n).*?(<!-- end of \2 -->)", re.DOTALL)
"""A part of a page, made of the template of its name."""


def render(template: str) -> str:
    """A template with the numbers filled in."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    helpers: dict[str, Any] = {
        "has": lambda name: bool(rows_of(name)),
        "lines": reading.lines_with_results,
        "not_run": reading.not_run,
        "table": tables.table,
        "certainty": tables.certainty,
        "level": lambda: f"{LEVEL:g}",
        "by_severity": tables.by_severity,
        "by_corruption": tables.by_corruption,
        "streams": tables.streams,
        "hostile_networks": hostile.networks,
        "hostile": hostile.table,
        "hostile_peers": hostile.peers,
        "hostile_number": hostile.number_of,
        "hostile_verdicts": hostile.verdicts,
        "hostile_noticed": hostile.noticed,
        "public_network": public_network_checks.table,
        "small_networks": small_network_checks.table,
        "recovery": recovery_checks.table,
        "recovery_mean": recovery_checks.mean,
        "recovery_within": recovery_checks.within_a_point,
        "recovery_worst": recovery_checks.worst,
        "settings_table": calibrating.table,
        "settings_elsewhere": calibrating.others,
        "settings_protocol": calibrating.protocol,
        "score_table": calibrating.scores,
        "chosen_rates": calibrating.chosen_rates,
        "score_runs": calibrating.runs,
        "ours": lambda *place: number(row_of(*place), "ours"),
        "paper": lambda *place: number(row_of(*place), "paper"),
        "apart": reading.apart,
        "behind": reading.behind,
        "compared_steps": reading.compared_steps,
        "lowest_task_loss": reading.lowest_task_loss,
        "online": reading.online,
        "on_digits": reading.on_digits,
        "claims": verdicts.claims_table,
        "claims_with": verdicts.claims_with,
        "claims_judged": verdicts.claims_judged,
        "closely": verdicts.closely,
        "claims_turned": verdicts.claims_turned,
        "gaussian_map": reading.gaussian_map,
        "sources": tables.sources,
        "tuned_sources": tables.tuned_sources,
        "trials": tables.trials,
        "rates": tables.rates,
        "trial": lambda *setting, **stream: f"{reading.trial(*setting, **stream):.2f}",
        "learned_errors": tables.learned_errors,
        "learned_fits": tables.learned_fits,
        "rows": rows_of,
        "number": number,
    }
    return environment.get_template(template).render(**helpers)


def pages() -> dict[Path, str]:
    """Every page that is made from the results, by its file."""
    with_parts = (ROOT / "README.md", DOCS / "safety.md", DOCS / "settings.md")
    return {
        DOCS / "results.md": render("results.md"),
        **{file: filled(file) for file in with_parts},
    }


def filled(file: Path) -> str:
    """A page whose parts are made of the results, the rest as it is."""
    return PART.sub(
        lambda found: f"{found[1]}{render(f'{found[2]}.md')}{found[3]}",
        file.read_text(encoding="utf-8"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", choices=("collect",), help="take over results first")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("reproduce"))
    arguments = parser.parse_args()
    if arguments.command == "collect":
        collect(arguments.folder)
    write_changed(derived())
    write_changed(pages())  # after the tables, from which they are made


def write_changed(files: dict[Path, str]) -> None:
    """Write the files that are not so already."""
    for file, text in files.items():
        changed = not file.is_file() or file.read_bytes() != text.encode()
        if changed:
            write_atomically(file, text.encode())
        print(f"{'written' if changed else 'unchanged'}: {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
