// Refreshes the page, and follows queries. The page works without it.

// visible escapes characters that are not printable, as the server does.
const visible = (text) => text.replaceAll("\t", " ").replace(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, (c) => `\\u{${c.codePointAt(0).toString(16).toUpperCase()}}`);

// element returns an element with a text or with children.
function element(name, properties, ...children) {
	const e = Object.assign(document.createElement(name), properties);
	e.append(...children.map((c) => (typeof c === "string" ? visible(c) : c)));
	return e;
}

// pauser adds a button that pauses and continues something, and returns whether it runs.
function pauser(what, before, changed) {
	let paused = false;
	const button = element("button", { type: "button" }, `Pause ${what}`);
	button.addEventListener("click", () => {
		paused = !paused;
		button.textContent = `${paused ? "Continue" : "Pause"} ${what}`;
		changed?.();
	});
	before.before(button);
	return () => !paused && !document.hidden;
}

// refresh replaces the live part of the page by the server's present one, unless it is being used.
async function refresh() {
	const live = document.getElementById("live");
	const reply = await fetch(location.href, { signal: AbortSignal.timeout(10000) });
	if (!reply.ok) throw new Error(`the server answers ${reply.status}`);
	const page = new DOMParser().parseFromString(await reply.text(), "text/html");
	const present = page.getElementById("live");
	if (live.contains(document.activeElement) || !document.getSelection().isCollapsed) return;
	const open = [...live.querySelectorAll("details")].map((d) => d.open);
	present.querySelectorAll("details").forEach((d, i) => { d.open = Boolean(open[i]); });
	live.replaceChildren(...document.adoptNode(present).childNodes);
}

// clock returns the time of day.
const clock = (time) => new Date(time).toISOString().slice(11, 19);

// gone dims what a server showed that does not answer any more, below a banner; "" shows it again.
function gone(part, text) {
	let banner = document.getElementById("gone");
	part.classList.toggle("old", Boolean(text));
	if (!text) return banner?.remove();
	if (!banner) {
		banner = element("p", { id: "gone", className: "health bad" });
		banner.setAttribute("role", "alert");
		part.before(banner);
	}
	banner.textContent = text;
}

// refreshing calls refresh every few seconds.
function refreshing(live) {
	const state = element("span", { className: "note" }, ` As of ${clock(Date.now())} UTC`);
	const runs = pauser("refreshing", live);
	live.before(state);
	let answered = Date.now();
	setInterval(async () => {
		if (!runs()) return;
		try {
			await refresh();
			answered = Date.now();
			state.textContent = ` As of ${clock(answered)} UTC`;
			gone(live, "");
		} catch (error) {
			const seconds = Math.round((Date.now() - answered) / 1000);
			gone(live, `This server has not answered for ${seconds} s (${visible(error.message)}). What follows is of ${clock(answered)} UTC.`);
		}
	}, 1000 * Number(live.dataset.refresh));
}

// duration shows nanoseconds.
function duration(n) {
	if (n >= 1e9) return `${(n / 1e9).toFixed(1)}s`;
	if (n >= 1e6) return `${(n / 1e6).toFixed(1)}ms`;
	return `${Math.round(n / 1e3)}µs`;
}

// rcode returns the class of a response code.
const rcode = (code) => (["NOERROR", "NXDOMAIN", "SERVFAIL"].includes(code) ? code.toLowerCase() : "other");

// row returns the table row of a query.
function row(e) {
	const query = new URLSearchParams({ name: e.name, type: e.type, client: e.client });
	const name = element("th", { className: "name", scope: "row" }, element("a", { href: `explain?${query}` }, e.name));
	const code = element("span", { className: `code ${rcode(e.rcode)}` }, e.rcode || "no reply");
	return element("tr", {},
		element("td", {}, element("span", { className: "time" }, new Date(e.time).toISOString().slice(11, 23))), element("td", {}, code), name, element("td", {}, e.type),
		element("td", { className: "n" }, duration(e.duration)), element("td", {}, e.source), element("td", {}, e.client), element("td", {}, e.namespace ?? ""));
}

// read adds queries to the table until signal.
async function read(table, state, signal) {
	const reply = await fetch(`v1/tail${location.search}`, { signal });
	if (!reply.ok) throw new Error((await reply.json()).error);
	state.textContent = "Following.";
	const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
	let lost = 0;
	let held = []; // while the pointer is over the table, so that its links can be clicked
	for (let rest = ""; ;) {
		const { value, done } = await reader.read();
		if (done) throw new Error("the server has ended the connection");
		const lines = (rest + value).split("\n");
		rest = lines.pop();
		const events = lines.filter((l) => l).map((l) => JSON.parse(l));
		lost += events.reduce((sum, e) => sum + (e.lost ?? 0), 0);
		if (lost) state.textContent = `Following; ${lost} ${lost === 1 ? "query is" : "queries are"} not shown because there were too many.`;
		const rows = events.filter((e) => e.lost === undefined).map(row).reverse();
		held = [...rows, ...held].slice(0, Number(table.dataset.most));
		if (table.matches(":hover")) continue;
		if (held.length) table.querySelector(".none")?.remove();
		table.prepend(...held.splice(0));
		while (table.rows.length > Number(table.dataset.most)) table.lastElementChild.remove();
	}
}

// follow reads queries while the page is visible and not paused.
function follow(table) {
	const state = document.getElementById("tail-state");
	let control = null;
	const change = () => {
		if (control && !runs()) {
			control.abort();
			control = null;
			state.textContent = "Paused.";
		} else if (!control && runs()) {
			control = new AbortController();
			const mine = control;
			read(table, state, mine.signal).catch((error) => {
				if (mine.signal.aborted) return;
				control = null;
				state.textContent = "";
				gone(table.closest(".scroll"), `Not following since ${clock(Date.now())} UTC: ${visible(error.message)}. Load the page again to follow.`);
			});
		}
	};
	const runs = pauser("the queries", state, change);
	document.addEventListener("visibilitychange", change);
	change();
}

// flushing adds the form that removes cached answers.
function flushing(template) {
	const form = template.content.firstElementChild.cloneNode(true);
	const state = form.querySelector("[role=status]");
	form.addEventListener("submit", async (event) => {
		event.preventDefault();
		const query = new URLSearchParams(new FormData(form));
		try {
			const reply = await fetch(`v1/cache/flush?${query}`, { method: "POST", headers: { "X-Seamark": "1" } });
			const answer = await reply.json();
			state.textContent = reply.ok ? `${answer.removed} answers removed.` : visible(answer.error);
			if (reply.ok) await refresh();
		} catch (error) {
			state.textContent = `Failed: ${visible(error.message)}`;
		}
	});
	template.after(form);
}

const live = document.querySelector("[data-refresh]");
if (live) refreshing(live);
const table = document.getElementById("tail");
if (table) follow(table);
const flush = document.getElementById("flush");
if (flush) flushing(flush);
