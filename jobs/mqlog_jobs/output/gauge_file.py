"""The file of ``--prometheus``, beside what a command prints."""

from mqlog_jobs.output.form import Form
from mqlog_jobs.output.whole_file import check_file, is_standard_output
from mqstore.errors import InvalidOptionError


def check_gauges(path: str | None, form: Form) -> None:
    """Raise the OSError that writing the file would raise, and InvalidOptionError.

    Gauges on standard output take the place of what is printed.
    """
    if path is None:
        return
    if is_standard_output(path) and (form.as_json or form.as_csv):
        raise InvalidOptionError("--prometheus", path, "choose one of the formats")
    check_file(path)
