"""What a replay shows of an observation: its numbers with their names, or the image that it is."""

import io
from typing import TYPE_CHECKING

import numpy as np
from gymnasium.spaces import Box

from rlkit import spaces
from rlkit.control import names, video
from rlkit.control.env import ControlEnv
from rlkit.control.vector import Array
from rlkit.pages.server import Json
from rlkit.policies.encoders import channels_last, is_image

if TYPE_CHECKING:
    from rlkit.api import AnySpace

Action = list[float] | float | None  # None: the end

MOST = 64  # numbers of an observation that are shown
SIDE = 320  # pixels of a small image, at least


def told(env: ControlEnv, frames: list[video.Frame]) -> Json:
    """Each state of an episode: its numbers, where they are few, and what numbers and actions are called."""
    called, space = names.of(env), env.observation_space
    assert space is not None, "a control problem has spaces"
    rows = np.array([frame["observation"] for frame in frames], spaces.row(space)[1])
    parts = [(".".join(path), x.reshape(len(rows), -1)) for path, _, x in spaces.leaf_arrays(space, rows)]
    few = not is_image(space) and sum(x.shape[1] for _, x in parts) <= MOST
    named = [(path, x.shape[1]) for path, x in parts if path and few]
    own = [f"{path} {i}" if size > 1 else path for path, size in named for i in range(size)]
    return {
        "names": {"observation": own or list(called.observation), "action": list(called.action)},
        "observation": np.hstack([x for _, x in parts]).tolist() if few else None,
        "reward": [frame["reward"] for frame in frames],
        "action": [executed(env.action_space, frame["action"]) for frame in frames],
        "value": [frame["value"] for frame in frames],
    }


def executed(space: "AnySpace | None", action: Action) -> Action:
    """What the environment got of an action: clipped or rounded to a Box, and counted from the start of a Discrete."""
    if action is None or space is None or spaces.is_composite(space):
        return action
    found = np.asarray(spaces.executed(space, np.array([action]))[0])
    return (found.astype(int) if found.dtype == bool else found).ravel().tolist() if found.ndim else found.item()


def images(env: ControlEnv, frames: list[video.Frame]) -> list[Array] | None:
    """What the policy saw, as pictures [H, W, 3], the newest of a stack; nothing where it is not an image."""
    space = env.observation_space
    if not isinstance(space, Box) or not is_image(space):
        return None
    pixels = [np.asarray(frame["observation"]).reshape(-1, *space.shape[-3:])[-1] for frame in frames]
    bits = max(int(image.max(initial=0)) for image in pixels) <= 1  # in all of them: one may be black
    return [picture(image, channels_last(space), bits) for image in pixels]


def picture(image: Array, last: bool, bits: bool) -> Array:
    """An image of any number of channels as [H, W, 3]: colors, the newest of several gray ones, or planes of bits.

    last: whether the channels are its last dimension.
    """
    pixels = image if last else np.moveaxis(image, 0, -1)
    channels = pixels.shape[-1]
    if bits and channels > 1:
        shown = planes(pixels)
    elif channels == 3:
        shown = pixels
    else:
        shown = np.repeat(pixels[..., -1:], 3, axis=-1) * (255 if bits else 1)
    times = max(1, -(-SIDE // max(shown.shape[:2])))
    return shown.astype(np.uint8).repeat(times, axis=0).repeat(times, axis=1)


def planes(bits: Array) -> Array:
    """A color for each plane, evenly around the wheel; where several are set, the last one; white where none is."""
    count = bits.shape[-1]
    turn = 2 * np.pi * (np.arange(count)[:, None] / count + np.array([0, 1 / 3, 2 / 3]))
    colors = (127 + 90 * np.cos(turn)).astype(np.uint8)  # [planes, 3]
    top = count - 1 - np.flip(bits, -1).argmax(-1)
    return np.where(bits.max(-1, keepdims=True) > 0, colors[top], np.uint8(255))


def png(image: Array) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG", compress_level=3)
    return file.getvalue()
