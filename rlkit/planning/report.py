"""The printed plan, at most 80 columns wide."""

import textwrap
from collections.abc import Iterator

from rlkit.planning.coefficients import ERRORS
from rlkit.planning.hardware import GIB
from rlkit.planning.memory import ROOM, Model
from rlkit.planning.predict import Step
from rlkit.planning.remedies import Change, remedies
from rlkit.planning.setting import Setting
from rlkit.settings.schema import show

WIDTH = 80


def report(setting: Setting, model: Model, step: Step) -> str:
    blocks = [heading(setting, model), phases(setting, step), held(setting, step), verdict(setting, model, step)]
    return "\n\n".join([*blocks, wrapped(errors(setting))])


def wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH)


def heading(setting: Setting, model: Model) -> str:
    texts = setting.texts
    machines = -(-setting.gpus // setting.machine)
    where = f"{setting.gpus:,} {setting.gpu}" + (f" in {machines} machines" if machines > 1 else "")
    told = f"{model.name}, {parameters(model.sizes.total)} parameters"
    told += f", adapters of {parameters(model.trained)}" if model.rank else ""
    lengths = f"{texts.prompt:,} + {texts.answer:,} tokens, the longest answer {texts.longest:,}"
    lines = (f"{told}, on {where}", f"{texts.prompts:,} prompts × {texts.group} answers: {lengths}")
    return "\n".join(map(wrapped, lines))


def parameters(count: int) -> str:
    return f"{count / 1e9:.3g} B" if count >= 1e9 else f"{count / 1e6:.3g} M"


def phases(setting: Setting, step: Step) -> str:
    """Seconds of each phase, its share, and the tokens per second."""
    rows = list(seconds(setting, step))
    title = "a step" if step.fits else "a step, if it fitted"
    lines = [f"{title:<44}{'seconds':>10}{'share':>8}"]
    lines += [f"  {name:<42}{value:>10,.2f}{value / step.total:>8.0%}" for name, value in rows]
    lines.append(f"  {'in all':<42}{step.total:>10,.2f}{1:>8.0%}")
    texts = setting.texts
    rate = texts.count * texts.answer / step.total
    lines.append(f"  {rate:,.0f} tokens written and learned a second, {rate / setting.gpus:,.0f} on each GPU")
    return "\n".join(lines)


def seconds(setting: Setting, step: Step) -> Iterator[tuple[str, float]]:
    yield "generation", step.writing.prompts + step.writing.full
    yield "waiting for the longest answer (bubble)", step.writing.waiting
    yield "weight transfer to the engine", step.transfer
    yield "log-probabilities" + (", and the reference's" if setting.kl else ""), step.forward
    yield "learning", step.learning
    yield f"{'shards' if step.sharded else 'gradients'} between GPUs, not hidden", step.between
    yield f"checkpoint, one in {setting.save_every} steps", step.saving
    if setting.engine_gpus:
        yield "both at the same time", -step.together


def held(setting: Setting, step: Step) -> str:
    memory = step.memory
    share = f", of which it has one in {setting.learners}" if step.sharded else ""
    rows = [
        (f"parameters{share}", memory.parameters),
        ("moments of Adam" + (", likewise" if share else ""), memory.moments),
        ("the reference" + (", likewise" if share else ""), memory.reference),
        ("the engine's weights in bfloat16", memory.engine),
        ("while writing: keys, values, probabilities", memory.cache),
        ("while learning: gradients" + (", likewise" if share else ""), memory.gradients),
        ("while learning: gathered layers", memory.gathered),
        ("while learning: activations, logits", memory.activations),
        ("at the peak", memory.peak),
    ]
    lines = [f"{'memory of a GPU that learns':<48}{'GB':>8}"]
    lines += [f"  {name:<46}{size / GIB:>8,.1f}" for name, size in rows if size]
    lines.append(f"  {f'there is room for ({ROOM:.0%} of it)':<46}{step.limit / GIB:>8,.1f}")
    if setting.engine_gpus:
        lines.append(f"  {'a GPU that writes, with one answer':<46}{step.engine / GIB:>8,.1f}")
    return "\n".join(lines)


def verdict(setting: Setting, model: Model, step: Step) -> str:
    """Whether it fits, and if not, what would fit."""
    if step.fits:
        return "It fits."
    over = (max(step.memory.peak, step.engine) - step.limit) / GIB
    found = remedies(setting, model)
    first = f"It does not fit: {over:,.1f} GB too much on a GPU. "
    if not found:
        return wrapped(first + "No change of these keys on up to 512 GPUs helps: use a smaller model.")
    return "\n".join([first + "This would:", *(f"  {words(change)}" for change in found)])


def words(change: Change) -> str:
    return " ".join(f"{key}={show(value)}" for key, value in change.items())


def errors(setting: Setting) -> str:
    """The error of the prediction on measurements that were not fitted."""
    told = [f"{what} {median:.2f} ({worst:.2f})" for what, (_, median, worst) in ERRORS.items()]
    text = (
        f"On held-out points, predictions are wrong by a factor of (median, worst): {', '.join(told)}; docs/scale.md."
    )
    if setting.engine == "native":
        text += " All of these points used vLLM: rlkit's own engine has not been measured on a GPU."
    return text
