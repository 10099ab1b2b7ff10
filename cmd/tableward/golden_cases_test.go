// SPDX-License-Identifier: Apache-2.0

package main

// goldenCase is a run on a simulator, files in the working folder. The seed is what the
// kernel holds for IPv4.
type goldenCase struct {
	name  string
	files map[string]string
	seed  string
	args  []string
}

var goldenCases = []goldenCase{
	{"apply-json", map[string]string{"web.rules": webRules, "bad.rules": badRules, "worse.rules": worseRules}, "",
		[]string{"apply", "-o", "json", "web.rules", "bad.rules", "worse.rules"}},
	{"apply-text", map[string]string{"web.rules": webRules, "bad.rules": badRules, "worse.rules": worseRules}, "",
		[]string{"apply", "web.rules", "bad.rules", "worse.rules"}},
	{"apply-conflict", map[string]string{"loop.rules": "*filter\n:a-1 - [0:0]\n:a-2 - [0:0]\n-A a-1 -j a-2\n-A a-2 -j a-1\n-A INPUT -j a-1\nCOMMIT\n"}, "",
		[]string{"apply", "-o", "json", "loop.rules"}},
	{"apply-hooks", map[string]string{"hook.rules": "*filter\n-A INPUT -p tcp -j other-in\nCOMMIT\n"}, "",
		[]string{"apply", "-o", "json", "hook.rules"}},
	{"apply-stub-missing", map[string]string{"hook.rules": "*nat\n-A PREROUTING -p tcp -j other-in\nCOMMIT\n"}, "",
		[]string{"apply", "--stub-missing", "hook.rules"}},
	{"apply-policies", map[string]string{"p.rules": "*filter\n:INPUT DROP [0:0]\n:p-in - [0:0]\n-A p-in -j ACCPET\nCOMMIT\n*nat\n:OUTPUT DROP [0:0]\nCOMMIT\n"}, "",
		[]string{"apply", "--policies", "-o", "json", "p.rules"}},
	{"apply-policies-ignored", map[string]string{"a.rules": "*filter\n:INPUT DROP [0:0]\nCOMMIT\n", "b.rules": "*filter\n:INPUT DROP [0:0]\n:OUTPUT - [0:0]\nCOMMIT\n"}, "",
		[]string{"apply", "a.rules", "b.rules"}},
	{"apply-clash", map[string]string{"web.rules": webRules, "web.more.rules": webRules, "db.rules": "*nat\n:db-x - [0:0]\nCOMMIT\n"}, "",
		[]string{"apply", "."}},
	{"apply-foreign-owner", map[string]string{"d.rules": "*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -j RETURN\n-A FORWARD -j DOCKER-USER\n-A FORWARD -j DOCKER-USER\nCOMMIT\n"},
		"*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -j DROP\nCOMMIT\n", []string{"apply", "d.rules"}},
	{"dry-run", map[string]string{"web.rules": webRules, "web.v6.rules": webRules}, "*filter\n:web-in - [0:0]\n-A web-in -j DROP\n-A INPUT -j ACCEPT\nCOMMIT\n",
		[]string{"apply", "--dry-run", "."}},
	{"dry-run-json", map[string]string{"old.rules": "*nat\n-X old-a\n-A OUTPUT -j ACCEPT\nCOMMIT\n"}, "*nat\n:old-a - [0:0]\n-A old-a -j RETURN\nCOMMIT\n",
		[]string{"apply", "--dry-run", "--prefix", "old-", "-o", "json", "old.rules"}},
	{"check-text", map[string]string{"web.rules": webRules, "odd.rules": oddRules, "worse.rules": worseRules}, "",
		[]string{"check", "."}},
	{"check-json", map[string]string{"web.rules": webRules, "odd.rules": oddRules}, "",
		[]string{"check", "-o", "json", "."}},
	{"check-good", map[string]string{"web.rules": webRules}, "", []string{"check", "web.rules"}},
	{"check-trial", map[string]string{"web.rules": webRules, "bad.rules": badRules}, dockerSeed,
		[]string{"check", "-o", "json", "."}},
	{"diff-text", map[string]string{"web.rules": webRules, "p.rules": diffRules}, diffSeed,
		[]string{"diff", "--policies", "."}},
	{"diff-json", map[string]string{"web.rules": webRules, "p.rules": diffRules}, diffSeed,
		[]string{"diff", "-o", "json", "."}},
	{"diff-same", map[string]string{"d.rules": "*filter\n:d-a - [0:0]\n-A d-a -s 10.0.0.1/32 -j ACCEPT\n-A FORWARD -j d-a\nCOMMIT\n"},
		"*filter\n:d-a - [0:0]\n-A d-a -s 10.0.0.1/32 -j ACCEPT\n-A FORWARD -j d-a\nCOMMIT\n", []string{"diff", "-o", "json", "d.rules"}},
	{"diff-trouble", map[string]string{"web.rules": webRules, "bad.rules": badRules, "worse.rules": worseRules}, "",
		[]string{"diff", "."}},
	{"prune", map[string]string{"tw.rules": pruneRules}, pruneSeed, []string{"apply", "--prune", "--prefix", "tw-", "tw.rules"}},
	{"prune-diff", map[string]string{"tw.rules": pruneRules}, pruneSeed, []string{"diff", "--prune", "--prefix", "tw-", "tw.rules"}},
	{"prune-dry-run", map[string]string{"tw.rules": pruneRules}, pruneSeed,
		[]string{"apply", "--prune", "--prefix", "tw-", "--dry-run", "-o", "json", "tw.rules"}},
	{"prune-refused", map[string]string{"tw.rules": pruneRules, "worse.rules": worseRules}, pruneSeed,
		[]string{"apply", "--prune", "--prefix", "tw-", "."}},
	{"prune-hook", map[string]string{"h.rules": "*filter\n-A FORWARD -j tw-old\nCOMMIT\n"}, pruneSeed,
		[]string{"apply", "--prune", "--prefix", "tw-", "h.rules"}},
	{"take", map[string]string{"d.rules": "*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -j RETURN\nCOMMIT\n"},
		"*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -j DROP\nCOMMIT\n", []string{"apply", "--take", "DOCKER-USER", "d.rules"}},
}

const (
	diffSeed = "*filter\n:web-in - [0:0]\n:other - [0:0]\n-A web-in -s 10.0.0.1/32 -j ACCEPT\n-A web-in -p tcp --dport 80 -j ACCEPT\n" +
		"-A INPUT -s 10.1.0.0/16 -j DROP\n-A INPUT -s 10.2.0.0/16 -j DROP\n-A INPUT -s 10.3.0.0/16 -j DROP\n-A INPUT -s 10.4.0.0/16 -j DROP\n-A other -j RETURN\nCOMMIT\n"
	diffRules = "*filter\n:FORWARD DROP [0:0]\n-I INPUT -s 10.9.0.0/16 -j ACCEPT\n-D INPUT -s 10.1.0.0/16 -j DROP\nCOMMIT\n*raw\n:p-raw - [0:0]\nCOMMIT\n"

	// pruneSeed has, in two tables, chains of an earlier run, among them a cycle and one that
	// a stranger's chain jumps to; one that goes on to be declared; and a chain of a stranger.
	pruneSeed = "*filter\n:tw-a - [0:0]\n:tw-old - [0:0]\n:tw-loop - [0:0]\n:DOCKER-USER - [0:0]\n" +
		"-A tw-a -j DROP\n-A tw-old -j tw-loop\n-A tw-loop -j tw-a\n" +
		"-A INPUT -j tw-old\n-A INPUT -s 10.1.0.0/16 -j tw-old\n-A INPUT -s 10.1.0.0/16 -j ACCEPT\n-A INPUT -j tw-old\n-A DOCKER-USER -j tw-loop\nCOMMIT\n" +
		"*nat\n:tw-n - [0:0]\n-A tw-n -j RETURN\n-A OUTPUT -j tw-n\nCOMMIT\n"
	pruneRules = "*filter\n:tw-a - [0:0]\n-A tw-a -j ACCEPT\n-A INPUT -j tw-a\nCOMMIT\n"
)
