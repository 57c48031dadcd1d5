"use strict";
// What a browser computes by itself: three gates tied by one threshold, and two designs.
// The same answer as the server's, for the page that needs none.
const localGates = {
  sigmoid: {
    value: a => (a >= 0 ? 1 / (1 + Math.exp(-a)) : Math.exp(a) / (1 + Math.exp(a))),
    slope: (a, y) => y * (1 - y),
  },
  laplace: {
    value: a => (a < 0 ? Math.exp(a) / 2 : 1 - Math.exp(-a) / 2),
    slope: (a, y) => Math.min(y, 1 - y),
  },
  sparse: {
    value: a => Math.min(1, Math.max(0, a)),
    slope: a => (a > 0 && a < 1 ? 1 : 0),
  },
};

function localWeights(name, scores, k, temperature) {
  const gate = localGates[name];
  const n = scores.length;
  if (k <= 0 || k >= n) return {weights: scores.map(() => (k <= 0 ? 0 : 1)), slopes: scores.map(() => 0)};
  const sum = c => scores.reduce((total, x) => total + gate.value((x + c) / temperature), 0);
  let low = -Math.max(...scores) - 60 * temperature, high = -Math.min(...scores) + 60 * temperature;
  for (let i = 0; i < 200; i++) {
    const middle = (low + high) / 2;
    if (sum(middle) < k) low = middle; else high = middle;
  }
  const c = (low + high) / 2;
  const weights = scores.map(x => gate.value((x + c) / temperature));
  return {weights, slopes: scores.map((x, i) => gate.slope((x + c) / temperature, weights[i]))};
}

function localJacobian(slopes, temperature) {
  const total = slopes.reduce((a, b) => a + b, 0);
  return slopes.map((wi, i) => slopes.map((wj, j) => (total ? ((i === j ? wi : 0) - wi * wj / total) / temperature : 0)));
}

function localLossGradient(name, weights, scores) {  // in the weights
  const n = weights.length;
  if (name === "position") return weights.map((_, i) => i / n);
  if (name === "square") return weights.slice();
  if (name === "entropy") {
    return weights.map(y => { const p = Math.min(1 - 1e-12, Math.max(1e-12, y)); return Math.log((1 - p) / p); });
  }
  const kept = Math.min(n - 1, Math.round(weights.reduce((a, b) => a + b, 0)));
  const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);
  return weights.map((_, i) => (i === order[kept] ? 1 : 0));
}

function localRandom(seed) {  // mulberry32
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function localSample(name, probs, random) {
  const order = probs.map((_, i) => i);
  if (name === "random_systematic") {
    for (let i = order.length - 1; i > 0; i--) {
      const j = Math.floor(random() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
  }
  const u = random(), drawn = probs.map(() => 0);
  let before = 0;
  for (const i of order) {
    const after = before + probs[i];
    if (Math.ceil(after - u - 1e-9) > Math.ceil(before - u - 1e-9)) drawn[i] = 1;
    before = after;
  }
  return drawn;
}

function localCompute(state) {
  const {scores, k, temperature} = state;
  const operators = state.methods.map(name => {
    const {weights, slopes} = localWeights(name, scores, k, temperature);
    const jacobian = localJacobian(slopes, temperature);
    const incoming = localLossGradient(state.loss, weights, scores);
    const gradient = scores.map((_, j) => weights.reduce((total, _, i) => total + incoming[i] * jacobian[i][j], 0));
    return {name, weights, jacobian, gradient, sum: weights.reduce((a, b) => a + b, 0)};
  });
  const designs = state.designs.map(name => {
    if (k !== Math.round(k) && name !== "systematic") return {name, error: `${name}: k must be a whole number, got ${k}`};
    const probs = localWeights("sigmoid", scores, k, temperature).weights;
    const random = localRandom(state.seed + 1), frequency = scores.map(() => 0), samples = [];
    for (let draw = 0; draw < state.draws; draw++) {
      const x = localSample(name, probs, random);
      x.forEach((one, i) => { frequency[i] += one / state.draws; });
      if (draw < 20) samples.push(x);
    }
    return {name, probs, frequency, samples, exact: true};
  });
  const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);
  const hard = scores.map(() => 0);
  order.slice(0, Math.round(k)).forEach(i => { hard[i] = 1; });
  return {hard, operators, designs};
}
