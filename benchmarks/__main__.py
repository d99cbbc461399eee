"""`make bench`: run all benchmarks, print a table, write benchmarks/results.json."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import commands, control, deep_sea, estimators, pixels, rivals


def main() -> None:
    table = Table("benchmark", "measured", "target", "met", "note", title="priorax benchmarks")
    results = {}
    for module in (deep_sea, rivals, control, pixels, commands, estimators):
        for bench in module.run():
            sign = ">=" if bench.at_least else "<="
            table.add_row(
                bench.name,
                f"{bench.measured:.2f}",
                f"{sign} {bench.target:g}",
                "[green]yes[/]" if bench.met else "[red]no[/]",
                bench.note,
            )
            results[bench.name] = {
                "measured": round(bench.measured, 3),
                "target": bench.target,
                "met": bench.met,
                "note": bench.note,
            }
    Console().print(table)
    path = Path(__file__).parent / "results.json"
    path.write_text(json.dumps(results, indent=2) + "\n")


main()
