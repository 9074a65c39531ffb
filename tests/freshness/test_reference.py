"""The naive interpreter says what the theory's own worked examples say."""

from __future__ import annotations

from typing import Any

from freshness.reference import reference_answer

Answer = dict[str, Any]


def pond(seconds: float, *sources: str, **more: Any) -> dict[str, Any]:
    """A pipeline of one ripple, `r`."""
    return {"sources": list(sources), "ripples": {"r": {"seconds": seconds}}, **more}


def chain(*durations: float, **more: dict[str, Any]) -> dict[str, Any]:
    """A -> B -> C ...; a keyword adds to the pipeline of that name."""
    pipelines: dict[str, Any] = {}
    for name, seconds in zip("ABCDEF", durations):
        pipelines[name] = pond(seconds, *list(pipelines)[-1:], **more.get(name, {}))
    return pipelines


def at(time: float, do: str, pipeline: str, **more: Any) -> dict[str, Any]:
    return {"at": time, "do": do, "pipeline": pipeline, **more}


def answer(pipelines: dict[str, Any], *events: dict[str, Any], until: float | None = None) -> Answer:
    scenario: dict[str, Any] = {"pipelines": pipelines, "events": list(events)}
    return reference_answer(scenario if until is None else scenario | {"until": until})


def times(told: Answer, pipeline: str, event: str = "run_started") -> list[float]:
    return [entry["at"] for entry in told["timeline"] if (entry["event"], entry["pipeline"]) == (event, pipeline)]


def freshness(told: Answer, pipeline: str, event: str = "run_started") -> list[float]:
    return [
        entry["freshness"] for entry in told["timeline"] if (entry["event"], entry["pipeline"]) == (event, pipeline)
    ]


def counts(told: Answer, key: str) -> dict[str, Any]:
    return {name: pipeline[key] for name, pipeline in told["pipelines"].items()}


def test_a_tap_on_a_cold_chain_runs_each_pond_as_often_as_it_is_far_from_the_end() -> None:
    told = answer(chain(1, 1, 1), at(0, "tap", "C"))
    assert counts(told, "runs") == {"A": 3, "B": 2, "C": 1}
    assert (times(told, "A"), times(told, "B"), times(told, "C")) == ([0, 1, 2], [1, 2], [2])
    assert counts(told, "end_freshness") == {"A": 2, "B": 1, "C": 0}
    assert set(counts(told, "state").values()) == {"idle"}


def test_a_second_tap_advances_each_pond_by_one_run_at_once() -> None:
    told = answer(chain(1, 1, 1), at(0, "tap", "C"), at(10, "tap", "C"))
    assert counts(told, "runs") == {"A": 4, "B": 3, "C": 2}
    assert [times(told, name)[-1] for name in "ABC"] == [10, 10, 10]
    assert counts(told, "end_freshness") == {"A": 10, "B": 2, "C": 1}


def test_a_shared_source_runs_at_the_rate_of_its_fastest_reader_and_other_branches_rest() -> None:
    pipelines = {"A": pond(1), "B": pond(1), "C": pond(1, "A", "B"), "D": pond(1, "B")}
    alone = answer(pipelines, at(0, "wave", "D"), until=8)
    assert (alone["pipelines"]["A"]["state"], alone["pipelines"]["C"]["state"]) == ("idle", "idle")
    assert (times(alone, "A"), times(alone, "C")) == ([], [])
    both = answer(pipelines, at(0, "wave", "D"), at(5.5, "tap", "C"), until=8)
    assert times(both, "B") == times(alone, "B") == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert (times(both, "A")[0], times(both, "C")) == (5.5, [6.5])
    assert freshness(both, "C") == [5]


def test_a_bottleneck_under_a_wave_sets_the_rhythm_up_and_down_the_chain() -> None:
    told = answer(chain(1, 3, 1), at(0, "wave", "C"), until=14)
    assert times(told, "A") == [0, 1, 4, 7, 10, 13]
    assert times(told, "B") == [1, 4, 7, 10, 13]
    assert times(told, "C") == [4, 7, 10, 13]
    assert times(told, "C", "run_completed") == [5, 8, 11, 14]
    assert set(counts(told, "waste").values()) == {0}


def test_the_outlet_of_a_late_bottleneck_is_forty_five_seconds_stale_on_average() -> None:
    told = answer(chain(1, 1, 1, 10), at(0, "wave", "D"), until=3000)
    assert abs(told["pipelines"]["D"]["staleness"]["mean"] - 45) < 1
    assert told["pipelines"]["D"]["staleness"]["max"] == 50


def test_a_pulse_brings_a_cold_chain_to_one_freshness_with_one_run_each() -> None:
    told = answer(chain(1, 1, 1), at(3, "pulse", "C"))
    assert (times(told, "A"), times(told, "B"), times(told, "C")) == ([3], [4], [5])
    assert counts(told, "end_freshness") == {"A": 3, "B": 3, "C": 3}


def test_a_pulse_after_a_tap_skips_the_generations_in_between() -> None:
    told = answer(chain(1, 1, 1), at(0, "tap", "C"), at(10, "pulse", "C"))
    assert (times(told, "A")[3:], times(told, "B")[2:], times(told, "C")[1:]) == ([10], [11], [12])
    assert counts(told, "end_freshness") == {"A": 10, "B": 10, "C": 10}


def test_a_pulse_leaves_other_branches_alone() -> None:
    pipelines = {"A": pond(1), "B": pond(1), "C": pond(1, "A", "B"), "D": pond(1, "B")}
    told = answer(pipelines, at(0, "pulse", "D"))
    assert counts(told, "runs") == {"A": 0, "B": 1, "C": 0, "D": 1}


def test_a_slow_optional_source_never_holds_up_its_reader() -> None:
    pipelines = {"A": pond(1), "B": pond(4), "C": pond(1, "A", optional=["B"])}
    told = answer(pipelines, at(0, "wave", "C"), until=9)
    assert times(told, "A") == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert times(told, "C") == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert times(told, "B") == [0, 4, 8]
    required = answer(pipelines | {"C": pond(1, "A", "B")}, at(0, "wave", "C"), until=9)
    assert times(required, "C") == [4, 8]


def test_a_pulse_is_not_sent_to_an_optional_source_unless_there_are_no_others() -> None:
    beside = answer({"A": pond(1), "B": pond(4), "C": pond(1, "A", optional=["B"])}, at(0, "pulse", "C"))
    assert counts(beside, "runs") == {"A": 1, "B": 0, "C": 1}
    alone = answer({"B": pond(4), "C": pond(1, optional=["B"])}, at(0, "pulse", "C"))
    assert counts(alone, "runs") == {"B": 1, "C": 1}


def test_the_end_of_a_diamond_is_as_fresh_as_its_stalest_side() -> None:
    pipelines = {"S": pond(1), "A": pond(1, "S"), "B": pond(1, "S"), "X": pond(1, "A", "B")}
    told = answer(pipelines, at(0, "tap", "A"), at(5, "tap", "B"), at(10, "tap", "X"), until=10.5)
    assert (freshness(told, "A")[0], freshness(told, "B")[0], freshness(told, "X")) == (0, 1, [0])


def test_a_wave_over_windows_runs_each_pond_once_a_window() -> None:
    windows = [{"start": start, "end": start + 10} for start in (0, 10, 20)]
    told = answer(chain(1, 1, 1, A={"windows": windows}), at(0, "wave", "C"), until=29)
    assert (times(told, "A"), times(told, "B"), times(told, "C")) == ([0, 10, 20], [1, 11, 21], [2, 12, 22])
    assert freshness(told, "C") == [10, 20, 30]
    assert counts(told, "pull") == {"A": True, "B": True, "C": True}
    assert counts(told, "state") == {"A": "idle", "B": "idle", "C": "idle"}
    assert told["pipelines"]["C"]["delay"] == 10
    assert told["pipelines"]["C"]["staleness"]["max"] == 13


def test_an_inlet_waits_for_its_window_in_a_gap() -> None:
    windows = [{"start": 2, "end": 4}, {"start": 7, "end": 8}]
    told = answer(chain(1, 1, A={"windows": windows}), at(0, "pulse", "B"), at(5, "pulse", "B"), at(9, "pulse", "B"))
    assert (times(told, "A"), freshness(told, "A")) == ([2, 7], [4, 8])
    assert told["pipelines"]["B"]["targets"] == [9]


def test_a_tide_as_long_as_the_window_runs_in_every_window() -> None:
    windows = [{"start": start, "end": start + 10} for start in (0, 10, 20)]
    told = answer(chain(1, 1, A={"windows": windows}), at(0, "tide", "B", max_staleness=10), until=25)
    assert times(told, "B") == [1, 11.000001, 21.000001]


def test_a_tide_runs_the_chain_once_per_limit() -> None:
    told = answer(chain(1, 1), at(0, "tide", "B", max_staleness=4), until=11)
    assert (times(told, "A"), times(told, "B")) == ([0, 4, 8], [1, 5, 9])
    assert times(told, "B", "demand") == [0, 4, 8]


def test_a_tide_faster_than_the_bottleneck_runs_it_back_to_back() -> None:
    told = answer(chain(1, 3), at(0, "tide", "B", max_staleness=1), until=11)
    assert times(told, "B", "ripple_started") == [1, 4, 7, 10]


TWO_PONDS = {
    "p1": {"ripples": {"r1": {"seconds": 1}, "r2": {"seconds": 1}, "r3": {"seconds": 1, "after": ["r1", "r2"]}}},
    "p2": {"sources": ["p1"], "ripples": {"s1": {"seconds": 1}}},
}


def test_one_tap_over_two_ponds_is_three_runs_and_one() -> None:
    told = answer(TWO_PONDS, at(0, "tap", "p2"))
    assert counts(told, "runs") == {"p1": 3, "p2": 1}
    assert counts(told, "end_freshness") == {"p1": 2, "p2": 0}
    steps = [(e["at"], e["ripple"], e["freshness"]) for e in told["timeline"] if e["event"] == "ripple_started"]
    assert steps == [
        (0, "r1", 0), (0, "r2", 0),
        (1, "r3", 0), (1, "r1", 1), (1, "r2", 1),
        (2, "s1", 0), (2, "r3", 1), (2, "r1", 2), (2, "r2", 2),
        (3, "r3", 2),
    ]  # fmt: skip
    assert told["pipelines"]["p1"]["waste"] == 1


def test_retries_of_one_and_one_are_four_executions_whatever_the_demand() -> None:
    retry = {"retry": {"immediately": 1, "on_change": 1}}
    for demand in ("tap", "pulse", "wave"):
        told = answer(chain(1, 1, B=retry), at(0, "fail", "B", times=9), at(0, demand, "B"), until=30)
        assert told["pipelines"]["B"]["ripples"]["r"] == {"starts": 4, "completions": 0}
        attempts = [e["attempt"] for e in told["timeline"] if e["event"] == "ripple_started" and e["pipeline"] == "B"]
        assert attempts == [1, 2, 1, 2]
        assert (told["pipelines"]["B"]["state"], told["pipelines"]["B"]["failures"]) == ("failed", 2)


def test_a_failure_blocks_all_below_it_until_it_is_cleared() -> None:
    told = answer(
        chain(1, 1, 1),
        at(0, "fail", "A"),
        at(0, "pulse", "C"),
        at(2, "tap", "C"),
        at(3, "clear", "A"),
        at(9, "tap", "C"),
    )
    assert [times(told, name, "blocked") for name in "ABC"] == [[1], [1], [1]]
    assert [times(told, name, "unblocked") for name in "ABC"] == [[3], [3], [3]]
    refused = [entry for entry in told["timeline"] if entry["event"] == "demand_refused"]
    assert refused == [{"at": 2, "event": "demand_refused", "pipeline": "C", "kind": "tap", "because": "A"}]
    assert (times(told, "C"), freshness(told, "C")) == ([5, 11], [3, 9])
    assert counts(told, "runs") == {"A": 4, "B": 3, "C": 2}


def test_a_pond_whose_inputs_did_not_change_passes() -> None:
    pipelines = chain(1, 1, 1, B={"always_run": False}, C={"always_run": False})
    pulses = [at(time, "pulse", "C") for time in (0, 10, 20)]
    told = answer(pipelines, *pulses, at(5, "unchanged", "A"), at(15, "changed", "A"))
    assert counts(told, "runs") == {"A": 3, "B": 2, "C": 2}
    assert counts(told, "passes") == {"A": 0, "B": 1, "C": 1}
    assert told["pipelines"]["C"]["completions"] == [3, 11, 23]
