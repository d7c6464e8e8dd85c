"use strict";
// One answer at a time, each token coloured by who proposed it and marked by why it was kept.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (!data.runs.length) return;
  const find = (id) => document.getElementById(id);
  const COLOURS = ["0,114,178", "230,159,0", "0,158,115", "204,121,167", "213,94,0", "86,180,233"];
  const stripes = (angle) =>
    `repeating-linear-gradient(${angle}, transparent 0 5px, rgba(127,127,137,.45) 5px 6px)`;
  const PATTERNS = ["none", stripes("45deg"), stripes("0deg"), stripes("-45deg"), stripes("90deg")];
  const UNDERLINES = { em: "solid", topk: "dashed", con: "wavy" };
  const NOT_DRAFTED = new Set(["prefill", "target"]);
  const proposers = data.sources.filter((source) => !NOT_DRAFTED.has(source));
  let turns = [];
  let places = []; // [turn, step] of all steps of the shown answer, in order.
  let current = -1;

  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const visible = (text) =>
    text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
  const tint = (source) => {
    const number = proposers.indexOf(source);
    return number < 0 ? "" : `rgba(${COLOURS[number % COLOURS.length]},.3)`;
  };
  const paint = (element, source, reason) => {
    const number = proposers.indexOf(source);
    if (number >= 0) {
      element.style.setProperty("--tint", tint(source));
      element.style.setProperty("--pattern", PATTERNS[number % PATTERNS.length]);
    }
    if (!NOT_DRAFTED.has(reason)) {
      element.style.textDecorationLine = "underline";
      element.style.textDecorationStyle = UNDERLINES[reason] || "dotted";
    }
    // Exact matches are the rule: only what is not one has a letter.
    if (!NOT_DRAFTED.has(reason) && reason !== "em") element.append(make("sup", {}, reason[0]));
  };

  const describe = (turn, token) => {
    const [reason, source] = [data.reasons[turn.reasons[token]], data.sources[turn.sources[token]]];
    const regret = turn.regrets[token];
    const step = turn.steps[token];
    const where = step < 0 ? "prefill" : `step ${step + 1}`;
    const why = NOT_DRAFTED.has(reason) ? `chosen by the target` : `kept as ${reason}, from ${source}`;
    const cost = regret ? `, regret ${regret.toFixed(3)} nats` : "";
    const same = turn.differs === token ? "; first difference from vanilla" : "";
    return `output token ${token + 1}, ${where}: ${why}${cost}${same}`;
  };

  const tokenElement = (turn, turnNumber, token) => {
    const text = turn.words ? data.texts[turn.words[token]] : "·";
    const element = make("span", { className: "token", title: describe(turn, token) }, text || "∅");
    paint(element, data.sources[turn.sources[token]], data.reasons[turn.reasons[token]]);
    element.classList.toggle("differs", turn.differs === token);
    element.dataset.token = token;
    element.dataset.turn = turnNumber;
    element.dataset.step = turn.steps[token];
    return element;
  };

  const turnElement = (turn, number) => {
    const block = make("div", { className: "turn" });
    if (turns.length > 1) block.append(make("h4", {}, `Turn ${number + 1}`));
    const asked = turn.prompt === null
      ? make("p", { className: "read" }, "The prompt's text is not known here (its dataset was not found as it was).")
      : make("p", { className: "text prompt" }, data.texts[turn.prompt]);
    block.append(make("details", { open: true }, make("summary", {}, "prompt"), asked));
    if (turn.steps) {
      const tokens = turn.steps.map((_, token) => tokenElement(turn, number, token));
      if (!turn.words) {
        block.append(
          make("p", { className: "text" }, data.texts[turn.text]),
          make("p", { className: "read" }, "The run recorded no token texts: below a dot per output token."),
        );
      }
      block.append(make("div", { className: turn.words ? "tokens" : "tokens blocks" }, ...tokens));
    } else {
      block.append(make("p", { className: "text" }, data.texts[turn.text]));
    }
    block.append(make("p", { className: "read" }, `ended by ${turn.finish === "eos" ? "EOS" : "the budget"}`));
    if (turn.vanilla !== null) {
      const same = turn.differs === null ? "the same tokens" : "another text";
      const text = make("p", { className: "text" }, data.texts[turn.vanilla]);
      block.append(make("details", {}, make("summary", {}, `vanilla's answer (${same})`), text));
    }
    return block;
  };

  const drawLegend = () => {
    const entries = [...new Set(turns.flatMap((turn) => turn.sources || []))]
      .map((number) => data.sources[number])
      .filter((source) => !NOT_DRAFTED.has(source))
      .map((source) => [source, "target", `from ${source}`]);
    const reasons = [...new Set(turns.flatMap((turn) => turn.reasons || []))]
      .map((number) => data.reasons[number])
      .filter((reason) => !NOT_DRAFTED.has(reason))
      .map((reason) => ["target", reason, `kept as ${reason}`]);
    const items = [...entries, ...reasons, ["target", "target", "plain: the target's own"]];
    find("legend").replaceChildren(...items.map(([source, reason, text]) => {
      const sample = make("span", { className: "token" }, "abc");
      paint(sample, source, reason);
      return make("span", {}, sample, text);
    }));
  };

  const drawStep = () => {
    const [turnNumber, step] = places[current];
    const turn = turns[turnNumber];
    const tree = turn.trees && turn.trees[step];
    const nodes = turn.nodes[step];
    const panel = find("tree");
    if (tree) {
      const source = (node) => (tree.sources[node] < 0 ? "" : data.sources[tree.sources[node]]);
      panel.replaceChildren(drawTree(tree, {
        name: (node) => visible(data.texts[tree.words[node]]),
        source,
        tint: (node) => tint(source(node)),
      }));
    } else {
      const text = nodes ? "The run recorded no trees." : "Nothing was drafted in this step.";
      panel.replaceChildren(make("p", { className: "read" }, text));
    }
    const ofTurn = turns.length > 1 ? `turn ${turnNumber + 1}, ` : "";
    find("tree-title").textContent = `Draft tree of ${ofTurn}step ${step + 1}: ${nodes} draft nodes`;
  };

  const choose = (place, token) => {
    current = place;
    const [turnNumber, step] = places[place] || [-1, -1];
    document.querySelectorAll("#answer .token").forEach((element) => {
      const isSame = +element.dataset.turn === turnNumber && +element.dataset.step === step;
      element.classList.toggle("same-step", isSame);
      element.classList.toggle("chosen", isSame && +element.dataset.token === token);
    });
    find("step").textContent = place < 0 ? "no step" : `step ${place + 1} of ${places.length}`;
    find("previous").disabled = place <= 0;
    find("next").disabled = place >= places.length - 1;
    find("token-info").textContent = token === undefined ? "" : describe(turns[turnNumber], token);
    if (place >= 0) drawStep();
  };

  const showPrompt = () => {
    const prompt = data.runs[find("run").value].prompts[find("prompt").value];
    turns = prompt.turns;
    places = turns.flatMap((turn, number) => (turn.nodes || []).map((_, step) => [number, step]));
    find("answer").replaceChildren(...turns.map(turnElement));
    find("tree").replaceChildren();
    find("tree-title").textContent = "Draft tree";
    drawLegend();
    // A step with a draft shows what the view is for; the first steps often have none.
    const drafted = places.findIndex(([turn, step]) => turns[turn].nodes[step] > 0);
    choose(places.length ? Math.max(0, drafted) : -1);
  };

  const showRun = () => {
    const wanted = find("prompt").selectedOptions[0]?.dataset.id;
    const { prompts } = data.runs[find("run").value];
    find("prompt").replaceChildren(...prompts.map((prompt, number) => {
      const option = make("option", { value: number });
      option.textContent = `${prompt.id} (${prompt.category})${prompt.traced ? " ●" : ""}`;
      option.dataset.id = prompt.id;
      return option;
    }));
    // The same prompt of another run, to compare; at first one whose token texts were recorded.
    const same = prompts.findIndex((prompt) => prompt.id === wanted);
    const traced = prompts.findIndex((prompt) => prompt.traced);
    find("prompt").selectedIndex = Math.max(0, same >= 0 ? same : traced);
    showPrompt();
  };

  find("run").append(...data.runs.map((run, value) => make("option", { value }, run.label)));
  find("run").addEventListener("change", showRun);
  find("prompt").addEventListener("change", showPrompt);
  find("previous").addEventListener("click", () => choose(current - 1));
  find("next").addEventListener("click", () => choose(current + 1));
  find("answer").addEventListener("click", (event) => {
    const element = event.target.closest(".token");
    if (!element) return;
    const [turn, step] = [+element.dataset.turn, Math.max(0, +element.dataset.step)];
    const place = places.findIndex(([t, s]) => t === turn && s === step);
    if (place < 0) return;
    choose(place, +element.dataset.token);
  });
  showRun();
})();
