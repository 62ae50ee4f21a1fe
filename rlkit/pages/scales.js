// How a number becomes a color: the same for every prompt, run and time of learning, so that colors can be compared.

// Each from low to high; values beyond have the color of the end. place(x) is from -1 (orange) to 1 (blue).
export const SCALES = {
  advantage: { low: "−2 or less", high: "+2 or more", from: -1, to: 1, place: (x) => clamp(x / 2) },
  ratio: { low: "½ or less", high: "2 or more", from: -1, to: 1, place: (x) => clamp(Math.log2(x)) },
  clipped: { low: "clipped", high: "not", from: -1, to: 0, place: (x) => (x ? -1 : 0) },
  log_prob: { low: "−3 or less (p ≤ 0.05)", high: "0 (certain)", from: -1, to: 0, place: (x) => clamp(x / 3) },
};

export const place = (name, x) => SCALES[name].place(x);

// The ramp of a legend, from its low end to its high end.
export function ramp(name, steps = 24) {
  const { from, to } = SCALES[name];
  return Array.from({ length: steps }, (_, i) => from + ((to - from) * i) / (steps - 1));
}

const clamp = (t) => Math.max(-1, Math.min(1, Number.isNaN(t) ? 0 : t));
