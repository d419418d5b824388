"""`make clients`: runs the programs of released clients in many languages against real servers.

    make clients                        all programs
    make clients ARGS="pydocumentdb"    some of them
    make clients ARGS="--table"         no program: only writes the table of docs/clients.md anew

A program whose toolchain is missing is skipped; its last results stay.
"""

from __future__ import annotations

import argparse
import sys

from clients.client_program import read_programs
from clients.installing import InstallFailed, install
from clients.recording.exchanges import write_recording
from clients.recording.selection import kept_exchanges
from clients.results import read_results, row_of, write_page, write_row
from clients.running import run_program
from clients.steps import OUTCOMES, Step


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m clients", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="folders of tests/clients/programs (default: all)")
    parser.add_argument("--variant", help="only the variants whose name contains this")
    parser.add_argument("--table", action="store_true", help="only write the table of docs/clients.md anew")
    parser.add_argument("--no-write", action="store_true", help="leave results, table and recordings as they are")
    options = parser.parse_args()
    if options.table:
        write_page(read_results())
        return 0
    outcomes: list[str] = []
    failures = 0
    for program in read_programs(options.names):
        missing = program.missing_commands()
        if missing:
            outcomes.append(f"{program.folder}: skipped, needs {', '.join(missing)}")
            continue
        print(f"{program.folder}: installing {program.client} {program.version}", flush=True)
        try:
            folder = install(program)
        except InstallFailed as error:
            print(error, file=sys.stderr)
            outcomes.append(f"{program.folder}: cannot be installed")
            failures += 1
            continue
        for variant in program.variants:
            if options.variant and options.variant not in variant.name:
                continue
            name = program.run_name(variant)
            print(f"{name}: running", flush=True)
            run = run_program(program, variant, folder, _tell)
            row = row_of(program, variant, run)
            counts = ", ".join(f"{row.count(outcome)} {outcome}" for outcome in OUTCOMES)
            if not run.is_complete:
                print(run.printed, file=sys.stderr)
                outcomes.append(f"{name}: ended with {run.exit_code} after {counts}")
                failures += 1
                continue
            failures += row.count("failed")
            outcomes.append(f"{name}: {counts}")
            if not options.no_write:
                write_row(name, row)
                if variant.is_recorded:
                    exchanges = kept_exchanges(run.recording.exchanges)
                    write_recording(name, run.recording, exchanges, client=program.client, version=row.version)
                write_page(read_results())
    print("\n".join(outcomes))
    return 1 if failures else 0


def _tell(step: Step) -> None:
    print(f"  {step.outcome} {step.name}{': ' if step.reason else ''}{step.reason}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
