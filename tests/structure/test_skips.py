"""A run of pytest says what it could not test, and fails in CI where that could have been installed."""

import pytest

from tests.support import skips

pytest_plugins = ["pytester"]

MISSING = "no browser: `make browser` installs it"
UNKNOWN = "not today"
EXCUSED = "only root can mount a small disk"


@pytest.mark.parametrize(
    ("ci", "unavailable", "reasons", "code"),
    [
        ("", "", [MISSING, UNKNOWN], pytest.ExitCode.OK),
        ("true", "", [MISSING, UNKNOWN], pytest.ExitCode.TESTS_FAILED),
        ("true", "validators", [MISSING], pytest.ExitCode.TESTS_FAILED),
        ("true", "validators browser", [MISSING], pytest.ExitCode.OK),
        ("true", "", [EXCUSED], pytest.ExitCode.OK),
    ],
)
def test_a_skip_fails_the_run_in_ci_unless_its_reason_is_listed(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    ci: str,
    unavailable: str,
    reasons: list[str],
    code: pytest.ExitCode,
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("UNAVAILABLE", unavailable)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    mark = f"@pytest.mark.parametrize('reason', {reasons})"
    pytester.makepyfile(f"import pytest\n\n{mark}\ndef test_it(reason):\n    pytest.skip(reason)\n")
    done = pytester.runpytest_inprocess(plugins=[skips])
    assert done.ret == code
    assert (f"1 skipped: {MISSING}" in done.outlines) == (MISSING in reasons)
    faults = [line.partition(": ")[2] for line in done.outlines if line.startswith("CI may not skip a test")]
    assert faults == (reasons if code else [])
