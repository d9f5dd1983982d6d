"""`scalescope dashboard`: a W&B workspace and report of the scaling figures, as code."""

from pathlib import Path

from scalescope.cli.outputs import VerbParser
from scalescope.records.errors import UserError


def run(argv: list[str]) -> int:
    """Write the models (a dry run), or make or update them at W&B, and print where they are."""
    parser = VerbParser(
        prog="scalescope dashboard", description="Make or update a W&B workspace and report of the scaling figures."
    )
    parser.add_argument("--entity", default="", metavar="E", help="your W&B user or team")
    parser.add_argument("--project", default="scalescope", metavar="P")
    parser.add_argument("--workspace-url", metavar="URL", help="update this one instead of making another")
    parser.add_argument("--report-url", metavar="URL", help="update this one instead of making another")
    parser.add_argument("--dry-run", action="store_true", help="write the models as JSON files; needs no network")
    parser.add_argument("--out", type=Path, default=Path("dashboard"), help="the dry run's folder (dashboard)")
    options = parser.read(argv)
    from scalescope.report import dashboard  # it loads wandb, which --help need not wait for

    if options.dry_run:
        made = dashboard.write_dashboard(options.out, options.entity, options.project)
    else:
        for name in ("workspace_url", "report_url"):
            if (url := getattr(options, name)) is not None and not url.startswith("http"):
                raise UserError(f"--{name.replace('_', '-')} {url}: give the address that W&B shows it at, https://…")
        made = dashboard.publish_dashboard(options.entity, options.project, options.workspace_url, options.report_url)
    print(f"workspace: {made.workspace}\nreport:    {made.report}")
    return 0
