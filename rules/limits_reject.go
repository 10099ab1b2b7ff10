// SPDX-License-Identifier: Apache-2.0

package rules

import "strings"

// rejectTypes are the values of REJECT's --reject-with, with their other names, by IP
// version, and what comes nearest in the other. The tools take any beginning of them, in any
// case. Source: the modules' help in 1.8.9; tcp-reset is of both.
var rejectTypes = []struct {
	v       IPVersion
	names   [2]string
	instead string
}{
	{IPv4, [2]string{"icmp-net-unreachable", "net-unreach"}, "icmp6-no-route"},
	{IPv4, [2]string{"icmp-host-unreachable", "host-unreach"}, "icmp6-addr-unreachable"},
	{IPv4, [2]string{"icmp-proto-unreachable", "proto-unreach"}, "icmp6-port-unreachable"},
	{IPv4, [2]string{"icmp-port-unreachable", "port-unreach"}, "icmp6-port-unreachable"},
	{IPv4, [2]string{"icmp-net-prohibited", "net-prohib"}, "icmp6-adm-prohibited"},
	{IPv4, [2]string{"icmp-host-prohibited", "host-prohib"}, "icmp6-adm-prohibited"},
	{IPv4, [2]string{"icmp-admin-prohibited", "admin-prohib"}, "icmp6-adm-prohibited"},
	{IPv4, [2]string{"tcp-reset", "tcp-rst"}, "tcp-reset"},
	{IPv6, [2]string{"icmp6-no-route", "no-route"}, "icmp-net-unreachable"},
	{IPv6, [2]string{"icmp6-adm-prohibited", "adm-prohibited"}, "icmp-admin-prohibited"},
	{IPv6, [2]string{"icmp6-addr-unreachable", "addr-unreach"}, "icmp-host-unreachable"},
	{IPv6, [2]string{"icmp6-port-unreachable", "port-unreach"}, "icmp-port-unreachable"},
	{IPv6, [2]string{"icmp6-policy-fail", "policy-fail"}, "icmp-admin-prohibited"},
	{IPv6, [2]string{"icmp6-reject-route", "reject-route"}, "icmp-net-unreachable"},
	{IPv6, [2]string{"tcp-reset", "tcp-reset"}, "tcp-reset"},
}

// rejectType refuses a type that only the other IP version has.
func (c *check) rejectType(p *part) *RuleError {
	text := p.value.text()
	instead := ""
	for _, t := range rejectTypes {
		if !begins(t.names[0], text) && !begins(t.names[1], text) {
			continue
		}
		if !c.wrong(t.v) {
			return nil
		}
		if instead == "" {
			instead = t.instead
		}
	}
	if instead == "" {
		return nil
	}
	return c.failValue(p, text, 0, "write "+instead, "reject type %s is for IPv%d only", text, IPv4+IPv6-c.id.IPVersion)
}

func begins(name, text string) bool {
	return len(text) <= len(name) && strings.EqualFold(name[:len(text)], text)
}
