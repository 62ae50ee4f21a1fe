"""An episode as pictures: frames to look at one by one, or an animated GIF."""

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, BinaryIO, TypedDict

import numpy as np
import torch
from gymnasium.error import DependencyNotInstalled

from rlkit.api import Acts, Split, UserError, Values
from rlkit.control.env import ControlEnv
from rlkit.control.recall import at_play
from rlkit.control.requirements import endless
from rlkit.control.vector import Array, Copies
from rlkit.errors import one_line
from rlkit.policies.base import measured
from rlkit.seeding import derive, generators

if TYPE_CHECKING:
    from PIL import Image

WIDTH = 400  # pixels of a picture, at most: an episode may have a thousand
MOST = 300  # pictures of a GIF; of a longer episode some are left out
SECONDS = 10.0  # that a GIF takes, within what the eye can follow
FASTEST, SLOWEST = 20, 400  # milliseconds that a picture stays: browsers slow down what is faster
CAPTION = 22  # pixels below each picture
MARGIN = 6  # pixels beside a caption
DRAWING = threading.RLock()  # pygame and the variables of MuJoCo belong to the whole program


class Frame(TypedDict):
    """One state of an episode: see `frames`."""

    image: Array
    observation: list[float] | float
    action: list[float] | float | None
    reward: float
    value: float | None


class _Once(Copies):
    """One episode: what ended stays as it is, so that its last state can be seen."""

    def restart(self, rows: Array) -> None: ...


def frames(
    env: ControlEnv, policy: Acts, episode: int = 0, split: Split = "test", greedy: bool = True, draw: bool = True
) -> list[Frame]:
    """Play one episode of `env.evaluate` and draw each state.

    Frame t has "image" [H, W ≤ 400, 3] uint8 of the state s_t (without `draw` [0, 0, 3], and nothing is needed that
    draws), the "observation" of it, the "action" chosen in it, the "reward" that it earned,
    and "value", what the policy expects from s_t (V, or max Q) where it can say, else None; of several agents they are
    those of the first, until it leaves. The last frame is the state at the end: no action, no reward, and after a
    termination the value 0, as nothing follows. Greedy, it is the episode that `evaluate` measured, from the same reset
    seed.
    """
    with DRAWING if draw else nullcontext():
        return _episode(env, policy, episode, split, greedy, draw)


def _episode(env: ControlEnv, policy: Acts, episode: int, split: Split, greedy: bool, draw: bool) -> list[Frame]:
    if draw:
        prepare()
    draws = generators(policy)
    before = {name: generator.get_state() for name, generator in draws.items()}
    for generator in draws.values():
        generator.manual_seed(derive(env.seed, "evaluate", split, "action") % 2**31)
    copies = None
    try:
        copies = _Once(env.drawn() if draw else env.vector(env.agents))
        copies.reset([env.episode_seed(split, episode)] * copies.n)
        with torch.inference_mode(), measured(policy):
            return _play(copies, env, policy, greedy, _picture if draw else _nothing)
    except NotImplementedError:
        raise UserError(f"{env.source or 'this environment'} cannot be drawn: it has no render()") from None
    except (DependencyNotInstalled, ImportError) as error:
        missing = one_line(error)
        remedy = "pip install 'gymnasium[classic-control,toy-text]'"
        raise UserError(f"pictures need what is not installed: {remedy} ({missing})") from None
    finally:
        for name, generator in draws.items():
            generator.set_state(before[name])
        if copies is not None:
            copies.vector.close()


def _play(copies: Copies, env: ControlEnv, policy: Acts, greedy: bool, look: Callable[[Copies], Array]) -> list[Frame]:
    found: list[Frame] = []

    def frame(seen: Array) -> Frame:
        value = _value(policy, torch.from_numpy(seen).to(env.device, copy=True))  # it may write into it, as `act` may
        return Frame(image=look(copies), observation=seen[0].tolist(), action=None, reward=0.0, value=value)

    policy = at_play(policy, copies)
    for _ in range(env.patience):
        observation = torch.from_numpy(copies.observation).to(env.device, copy=True)
        action = policy.act(observation, greedy=greedy).cpu().numpy()
        now = frame(copies.observation)
        successor, reward, terminated, done = copies.step(action)
        found.append({**now, "action": action[0].tolist(), "reward": float(reward[0])})
        if done[0]:  # what it acts on next is not the end where it resets itself, or waits for other agents
            last = frame(successor)
            if terminated[0] and last["value"] is not None:
                last["value"] = 0.0  # no critic learns it: its targets leave it out
            return [*found, last]
    raise endless(env.source, env.patience, env.limiting)


def _nothing(copies: Copies) -> Array:
    return np.zeros((0, 0, 3), dtype=np.uint8)


def _picture(copies: Copies) -> Array:
    try:
        with drawn_by_egl():
            drawn = copies.vector.render()
    except Exception as error:  # of drivers and their libraries, which raise anything
        if not by_mujoco(error):
            raise
        words = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(
            f"MuJoCo cannot draw here ({words}): set MUJOCO_GL=egl, or MUJOCO_GL=osmesa, and install the library of "
            "that name"
        ) from error
    if drawn is None or drawn[0] is None:
        raise NotImplementedError
    picture = np.asarray(drawn[0])
    if picture.ndim == 2 or (picture.ndim == 3 and picture.shape[2] == 1):
        picture = np.stack([picture.reshape(picture.shape[:2])] * 3, -1)  # gray
    colored = picture.ndim == 3 and 0 not in picture.shape and picture.shape[2] in (3, 4)
    if picture.dtype.kind not in "iu" or not colored:  # of fractions all would be black
        raise UserError(
            f"render gave a picture of type {picture.dtype} and shape {picture.shape}: return bytes of "
            "[height, width, 3]"
        )
    return shrunk(picture.astype(np.uint8))


@contextmanager
def drawn_by_egl() -> Iterator[None]:
    """Without a screen, let MuJoCo draw through EGL: Gymnasium would take GLFW, which needs one.

    Only here: where EGL is missing, MuJoCo could not even be imported with this variable.
    """
    if "MUJOCO_GL" in os.environ or not without_screen():
        yield
        return
    os.environ["MUJOCO_GL"] = "egl"
    try:
        yield
    finally:
        del os.environ["MUJOCO_GL"]


def by_mujoco(error: Exception) -> bool:
    """Whether an error comes from what draws Gymnasium's MuJoCo environments."""
    names = (frame.f_globals.get("__name__") for frame, _ in walk_tb(error.__traceback__))
    return "gymnasium.envs.mujoco.mujoco_rendering" in names


def shrunk(image: Array) -> Array:
    """At most `WIDTH` pixels wide, [H, W, 3]; a copy, as the environment may draw over its own."""
    from PIL import Image

    height, width = image.shape[:2]
    if width <= WIDTH:
        return image.copy()
    size = WIDTH, max(1, round(height * WIDTH / width))
    return np.array(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))


def _value(policy: Acts, observation: torch.Tensor) -> float | None:
    """V(s) of a critic, or max Q(s, ·); nothing where the policy keeps neither."""
    return float(policy.value(observation)[0]) if isinstance(policy, Values) else None


def prepare() -> None:
    """Keep pygame quiet, content with a machine that has no screen, and away from SIGTERM, which SDL would swallow.

    Sound is never played: to open it writes into ~/.config, and errors where a machine has none.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")
    if without_screen():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def without_screen() -> bool:
    return not os.environ.get("DISPLAY") and os.name == "posix" and os.uname().sysname == "Linux"


def write_gif(frames: Sequence[Frame], path: str | Path | BinaryIO) -> None:
    """Write frames as an animated GIF that repeats; each picture says its step and the return so far."""
    from PIL import Image, ImageFont

    every = -(-len(frames) // MOST)
    earned = np.cumsum([0.0, *(frame["reward"] for frame in frames)])  # before each step
    shown = [t for t in range(len(frames)) if t % every == 0 or t == len(frames) - 1]
    captions = [_caption(frames[t], t, float(earned[t])) for t in shown]
    font = ImageFont.load_default()
    # Small pictures, of 84 pixels, say, are narrower than a caption.
    width = max(frames[t]["image"].shape[1] for t in shown)
    width = max(width, 2 * MARGIN + math.ceil(max(font.getlength(caption) for caption in captions)))
    pictures = [_captioned(frames[t]["image"], caption, width) for t, caption in zip(shown, captions, strict=True)]
    stay = int(min(max(1000 * SECONDS / len(shown), FASTEST), SLOWEST)) // 10 * 10  # a GIF counts hundredths
    palette = [picture.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE) for picture in pictures]
    durations = [stay] * (len(shown) - 1) + [1500]  # the end can be seen before it begins again
    try:
        palette[0].save(path, format="GIF", save_all=True, append_images=palette[1:], duration=durations, loop=0)
    except OSError as error:
        if not isinstance(path, str | Path):
            raise  # the caller opened the file and says its name
        raise UserError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None


def _captioned(image: Array, caption: str, width: int) -> "Image.Image":
    from PIL import Image, ImageDraw

    page = Image.new("RGB", (width, image.shape[0] + CAPTION), "white")
    page.paste(Image.fromarray(image), (0, 0))
    ImageDraw.Draw(page).text((MARGIN, image.shape[0] + 5), caption, fill="black")
    return page


def _caption(frame: Frame, step: int, earned: float) -> str:
    end = "" if frame["action"] is not None else "     end"
    return f"step {step}     return {_return(earned)}{end}"


def _return(earned: float) -> str:
    """A return with two decimals, or with three digits where it is small; what rounding leaves of a sum is 0."""
    return f"{earned:.3g}" if 1e-12 < abs(earned) < 0.01 else f"{round(earned, 2):g}"
