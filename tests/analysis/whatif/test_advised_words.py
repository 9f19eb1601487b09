"""What is said of advice: gains with their interval, losses, and why nothing is to be done."""

from __future__ import annotations

from dataclasses import replace

from hooktrace.analysis.whatif.advise import AGARWAL, advise
from hooktrace.analysis.whatif.advised_words import advice_text, loss_text, verdict
from hooktrace.analysis.whatif.choice import Choice

from .answers import answer, predicted


def test_a_line_says_what_it_gains_and_what_it_loses() -> None:
    """With the interval of the gain; the loss curve is nobody's to predict."""
    found = advise(answer(predicted(210.0, "fp16", 5.0, error=3e-4)))
    (line,) = found.lines
    assert verdict(found) == "Predicted to be worth a change, of 1 configuration simulated:"
    assert advice_text(found.answer, line) == (
        "fp16 in place of allreduce, buckets of 5 MB in place of 25 MB: gains 190 ms a step, 48 % "
        "(95 % 181 to 199 ms): 210 in place of 400 ms, predicted"
    )
    assert "0.0003 of the gradients' norm" in loss_text(found.answer, line.prediction)
    assert "not predicted" in loss_text(found.answer, line.prediction)


def test_left_as_it_is_for_one_of_three_reasons() -> None:
    """Nothing is faster; it is too little; or nobody knows whether it is."""
    slower = verdict(advise(answer(predicted(410.0, None, 5.0))))
    assert (
        slower == "Leave it as it is. Of 1 configuration simulated none is predicted to be faster."
    )
    little = verdict(advise(answer(predicted(396.0, None, 5.0))))
    assert "gains 4.00 ms, 1.0 % of a step: not worth a change" in little
    unsure = verdict(advise(answer(predicted(370.0, None, 5.0, own_ms=60.0))))
    assert "the prediction may be off by more: 95 % \N{MINUS SIGN}" in unsure


def test_a_replay_that_misses_the_run_itself_advises_nothing() -> None:
    """Whatever it predicts; up to a tenth of the step it may be off."""
    good = answer(predicted(210.0, "fp16", 5.0, error=3e-4))
    for measured_ms, advises in ((440.0, True), (600.0, False), (300.0, False)):
        found = advise(replace(good, today=replace(good.today, step_ms=measured_ms)))
        assert bool(found.lines) is advises
        assert verdict(found).startswith("Unknown what is worth a change") is not advises


def test_a_run_of_plain_all_reduce_is_not_told_to_be_one() -> None:
    """What is left is the machine; of another hook a plain run may tell more."""
    missed = answer(predicted(210.0, "fp16", 5.0, error=3e-4))
    plain = replace(missed, today=replace(missed.today, step_ms=600.0))
    assert "plain all-reduce" not in verdict(advise(plain))
    assert "a machine that does nothing else" in verdict(advise(plain))
    other = replace(plain, today=replace(plain.today, hook="fp16"))
    assert "a calibrated run of plain all-reduce" in verdict(advise(other))


def test_the_paper_is_cited_where_compression_was_tried_and_does_not_help() -> None:
    """Not where only buckets were tried, nor where the run compresses itself."""
    assert AGARWAL in verdict(advise(answer(predicted(410.0, "fp16", error=3e-4))))
    assert AGARWAL not in verdict(advise(answer(predicted(410.0, None, 5.0))))
    lossy = answer(predicted(410.0, "fp16", error=3e-4), baseline=predicted(400.0, error=0.1))
    assert AGARWAL not in verdict(advise(lossy))


def test_elsewhere_is_said() -> None:
    """Advice for other ranks names them."""
    found = advise(answer(predicted(410.0, None, 5.0, place=Choice(ranks=64))))
    assert verdict(found).startswith("Leave it as it is, on 64 ranks on 400 Mbit/s")
