"""Retry policies: how long to wait, and whether to try again at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.errors import InvalidDuration, InvalidInput, NonRetryable
from stepwell.kernel.retry import DEFAULT_RETRY, Backoff, Retry

MIDDLE = 0.5  # the fraction at which jitter changes nothing


def _delays(retry: Retry, count: int) -> list[float]:
    return [retry.delay(failures, MIDDLE) for failures in range(1, count + 1)]


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ("fixed", [2, 2, 2, 2]),
        ("linear", [2, 4, 6, 8]),
        ("exponential", [2, 4, 8, 16]),
    ],
)
def test_delays_grow_as_the_backoff_says(backoff: Backoff, delays: list[float]) -> None:
    assert _delays(Retry(backoff=backoff, base="2s"), 4) == delays


@pytest.mark.parametrize("backoff", ["fixed", "linear", "exponential"])
def test_no_delay_is_longer_than_the_maximum(backoff: Backoff) -> None:
    retry = Retry(backoff=backoff, base="3s", max="5s", jitter=1)
    assert max(retry.delay(failures, 0.999) for failures in (1, 2, 3, 100_000)) == 5


def test_the_defaults_are_three_attempts_from_a_second_to_a_minute() -> None:
    error = ValueError()
    assert [DEFAULT_RETRY.allows(error, failures) for failures in (1, 2, 3)] == [True, True, False]
    assert _delays(DEFAULT_RETRY, 8) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert DEFAULT_RETRY.delay(1, 0) == pytest.approx(0.8)
    assert DEFAULT_RETRY.delay(1, 0.999_999) == pytest.approx(1.2, abs=0.001)


@settings(deadline=None)
@given(
    jitter=st.floats(0, 1),
    fraction=st.floats(0, 1, exclude_max=True),
    failures=st.integers(1, 20),
)
def test_jitter_stays_within_its_share_of_the_delay(
    jitter: float, fraction: float, failures: int
) -> None:
    retry = Retry(backoff="linear", base=10, max="1d", jitter=jitter)
    exact = 10 * failures
    within = exact * jitter * (1 + 1e-9) + 1e-9
    assert abs(retry.delay(failures, fraction) - exact) <= within
    assert retry.delay(failures, 0) == pytest.approx(exact * (1 - jitter), abs=1e-9)


def test_a_base_may_be_any_duration() -> None:
    assert _delays(Retry(backoff="fixed", base=timedelta(minutes=1), max="PT1H"), 1) == [60]


def test_non_retryable_ends_it_even_where_it_is_to_be_retried() -> None:
    class Refused(NonRetryable):
        pass

    assert not Retry(retry_on=(NonRetryable,)).allows(Refused(), 1)


def test_retry_on_leaves_out_all_other_errors() -> None:
    retry = Retry(retry_on=(OSError,))
    assert retry.allows(ConnectionError(), 1)
    assert not retry.allows(ValueError(), 1)


def test_give_up_on_wins_over_retry_on() -> None:
    retry = Retry(retry_on=(OSError,), give_up_on=(PermissionError,))
    assert retry.allows(OSError(), 1)
    assert not retry.allows(PermissionError(), 1)
    assert not Retry(give_up_on=(ValueError,)).allows(UnicodeError(), 1)


def test_a_single_class_or_a_list_is_taken_for_a_tuple() -> None:
    single: Any = KeyError
    several: Any = [KeyError, OSError]
    assert Retry(retry_on=single).retry_on == (KeyError,)
    assert Retry(give_up_on=several).give_up_on == (KeyError, OSError)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attempts", 0),
        ("attempts", 2.0),
        ("attempts", True),
        ("attempts", 2**31),
        ("backoff", "quadratic"),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("jitter", float("nan")),
        ("jitter", True),
        ("retry_on", (ValueError, "OSError")),
        ("retry_on", (int,)),
        ("give_up_on", [ValueError()]),
    ],
)
def test_what_makes_no_policy_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"Retry\.{field}") as refused:
        Retry(**{field: value})
    assert refused.value.code == "invalid_input"


@pytest.mark.parametrize("field", ["base", "max"])
def test_a_delay_that_is_no_duration_is_refused_by_name(field: str) -> None:
    wrong: Any = {field: "soon"}
    with pytest.raises(InvalidDuration, match=rf"Retry\.{field}") as refused:
        Retry(**wrong)
    assert refused.value.code == "invalid_duration"


@pytest.mark.parametrize("kinds", [5, None, "ValueError", ["ValueError"]])
def test_what_is_no_exception_class_is_refused(kinds: Any) -> None:
    with pytest.raises(InvalidInput, match="exception classes"):
        Retry(retry_on=kinds)
