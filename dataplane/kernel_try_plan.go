// SPDX-License-Identifier: Apache-2.0

package dataplane

import "slices"

// plan is the blocks that try units: they load the rules into chains that nothing reaches,
// and hook these up.
type plan struct {
	w       *worker
	load    [][]probeLine
	reached []probeLine // the lines that hook up
	targets []string    // chains that are jumped to, made by load

	declare, append, last []probeLine // of load
	pack                  *pack
	chains                []*chainOf // of the pack
	unreached             *chainOf   // of all packs
}

// pack is units whose rules share chains.
type pack struct {
	units []*unit
	rules int
	split bool // some of its rules are refused, and each unit is to be asked for itself
}

// chainOf is a chain of a pack, for the rules that are to be reached from the same hooks.
type chainOf struct {
	name  string
	at    places
	items []*item
}

// plan plans units, in packs or each with chains of its own.
func (w *worker) plan(units []*unit, alone bool) *plan {
	p := &plan{w: w}
	for _, u := range units {
		if p.pack == nil || alone || p.pack.rules >= packRules {
			p.hook()
			p.pack = &pack{}
		}
		p.pack.units = append(p.pack.units, u)
		for _, it := range u.items {
			if it.asked() != 0 {
				p.put(it)
			}
		}
	}
	p.hook()
	p.load = cut(slices.Concat(p.declare, p.append, p.last), w.slice())
	return p
}

// put plans one rule where nothing reaches it, in a chain that is hooked up later.
func (p *plan) put(it *item) {
	p.pack.rules++
	c := p.chain(it)
	c.items = append(c.items, it)
	p.target(it)
	l := probeLine{text: "-A " + c.name + " " + it.text, items: []*item{it}, at: unreached}
	if it.ends() {
		p.last = append(p.last, l) // in a shared chain it would hide what is not behind it
	} else {
		p.append = append(p.append, l)
	}
}

func (p *plan) chain(it *item) *chainOf {
	at := it.asked() & reached
	if at == 0 || p.w.builtin(it.chain) {
		if p.unreached == nil {
			p.unreached = p.newChain(0)
		}
		return p.unreached
	}
	for _, c := range p.chains {
		if c.at == at {
			return c
		}
	}
	c := p.newChain(at)
	p.chains = append(p.chains, c)
	return c
}

func (p *plan) newChain(at places) *chainOf {
	c := &chainOf{name: p.w.newChain(), at: at}
	p.declare = append(p.declare, probeLine{text: declares(c.name)})
	return c
}

// target makes the chain that a rule jumps to.
func (p *plan) target(it *item) {
	name := p.w.target(it.rule)
	if name != "" && !p.w.room.declared[chainKey{p.w.id, name}] && !slices.Contains(p.targets, name) {
		p.targets = append(p.targets, name)
		p.declare = append(p.declare, probeLine{text: declares(name)})
	}
}

// hook plans the hooks of the pack: of its chains, and of the rules of built-in chains.
func (p *plan) hook() {
	if p.pack == nil {
		return
	}
	for i := range p.w.hooks {
		for _, c := range p.chains {
			if c.at&(1<<i) != 0 {
				p.reached = append(p.reached, p.w.hookLine(c, i, p.pack))
			}
		}
	}
	for _, u := range p.pack.units {
		for _, it := range u.items {
			if at := it.asked() &^ unreached; at != 0 && p.w.builtin(it.chain) {
				p.reached = append(p.reached, p.w.ownLine(it, at, p.pack))
			}
		}
	}
	p.chains = nil
}

// blocks are the blocks of the plan; so many of them load. On legacy each writes the table
// once more, so that for many units there is but one.
func (p *plan) blocks(many bool) (blocks [][]probeLine, load int) {
	hooks := p.w.hooking(p.reached)
	if p.w.backend == Legacy && many {
		return [][]probeLine{slices.Concat(slices.Concat(p.load...), slices.Concat(hooks...))}, 1
	}
	return slices.Concat(p.load, hooks), len(p.load)
}

// loaded notes that the blocks of load were taken.
func (p *plan) loaded() {
	for _, block := range p.load {
		p.w.took(block)
	}
	if p.w.backend == NFT {
		for _, name := range p.targets {
			p.w.room.declared[chainKey{p.w.id, name}] = true
		}
	}
}

// took notes that the rules of lines were taken where the lines try them.
func (w *worker) took(lines []probeLine) {
	for _, l := range lines {
		for _, it := range l.items {
			it.done |= l.at
		}
		if l.at != unreached {
			w.room.reached += len(l.items)
		}
	}
}

func (w *worker) newChain() string {
	for {
		w.room.chains++
		if name := tryPrefix + itoa(w.room.chains); !w.names[name] {
			return name
		}
	}
}

func declares(chain string) string { return ":" + chain + " - [0:0]" }

// hookLine hooks up a chain. On legacy it goes before what may end the built-in chain.
func (w *worker) hookLine(c *chainOf, hook int, of *pack) probeLine {
	return probeLine{text: w.insert() + w.hooks[hook] + " -j " + c.name, items: c.items, at: 1 << hook, pack: of, jump: true}
}

// ownLine puts a rule into its built-in chain: the kernel refuses more of what stands there
// than of what is reached from it.
func (w *worker) ownLine(it *item, at places, of *pack) probeLine {
	op := w.insert()
	if at == hidden || it.ends() {
		op = "-A "
	}
	return probeLine{text: op + it.chain + " " + it.text, items: []*item{it}, at: at, pack: of}
}

func (w *worker) insert() string {
	if w.backend == Legacy {
		return "-I "
	}
	return "-A "
}

// slice is how many lines a block may have that nothing reaches, 0 for all.
func (w *worker) slice() int {
	switch {
	case w.backend == Legacy:
		return 0
	case w.room.slice > 0:
		return w.room.slice
	case w.room.s.holder != nil:
		return sliceUnprivileged
	}
	return sliceNFT
}

// shorten has blocks be shorter from now on, if they are refused for their size.
func (w *worker) shorten(re *RestoreError) bool {
	if re == nil || re.Class != TooLarge || w.slice() < 8 {
		return false
	}
	w.room.slice = w.slice() / 4
	return true
}

// hooking cuts lines that hook up into blocks.
func (w *worker) hooking(lines []probeLine) [][]probeLine {
	if w.backend == NFT {
		return cut(lines, min(sliceReached, w.slice()))
	}
	var block []probeLine
	for _, l := range lines {
		if l.at == hidden {
			block = append(block, probeLine{text: "-A " + l.items[0].chain + " -j RETURN"})
		}
		block = append(block, l)
	}
	return cut(block, 0)
}

// cut cuts lines into blocks of so many, 0 for all. Of no lines there is no block.
func cut(lines []probeLine, size int) [][]probeLine {
	if size == 0 {
		size = len(lines) + 1
	}
	return slices.Collect(slices.Chunk(lines, size))
}
