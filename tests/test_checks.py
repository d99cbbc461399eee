"""Messages about invalid arguments propose what was probably meant."""

import pytest

from priorax.checks import checked_seed, fraction, non_negative, positive, positive_int


@pytest.mark.parametrize(
    ("check", "value", "proposal"),
    [
        (fraction, 90, r"x=90 must be a number above 0 and below 1; pass 0\.9 for 90%"),
        (fraction, 99.9, r"pass 0\.999 for 99\.9%"),
        (fraction, "95", r"x='95' .* pass 0\.95 for 95%"),
        (fraction, "0.9", r"x='0\.9' .* pass x=0\.9$"),
        (fraction, 100, r"pass for example x=0\.5"),
        (fraction, True, r"x=True .* pass for example x=0\.5"),
        (fraction, float("nan"), r"x=nan .* pass for example x=0\.5"),
        (positive_int, 20.0, r"x=20\.0 must be a whole number of at least 1; pass x=20$"),
        (positive_int, "7", "pass x=7$"),
        (positive_int, 0, "pass for example x=20"),
        (checked_seed, 3.0, r"x=3\.0 .* pass x=3$"),
        (checked_seed, -1, "pass for example x=0"),
        (non_negative, "0.3", r"x='0\.3' must be a finite number of at least 0; pass x=0\.3$"),
        (non_negative, -1, r"pass for example x=1\.0"),
        (positive, "big", r"pass for example x=1\.0"),
        (positive, float("inf"), r"pass for example x=1\.0"),
    ],
)
def test_what_was_probably_meant_is_proposed(check, value, proposal):
    arguments = (value, "x") if check is checked_seed else ("x", value)
    with pytest.raises(ValueError, match=proposal):
        check(*arguments)
