// SPDX-License-Identifier: Apache-2.0

package rules

// The long options of all matches and targets of iptables and ip6tables 1.8.9, read out of
// the option tables of its modules, by the number of words that getopt takes for their value.
// A wrong "one" would hide an option behind a value, and a wrong "none" would take a value
// for an option; an option that modules disagree about, or that is not here, is read both
// ways. Options that mean more than a value are in options.go.

// valueOptions take one value.
const valueOptions = `
ahlen ahspi algo and-mark and-tos bytecode bytes-eq bytes-gt bytes-lt cgroup chunk-types
cluster-hash-seed cluster-local-node cluster-local-nodemask cluster-total-nodes clustermac connbytes
connbytes-dir connbytes-mode connlimit-above connlimit-mask connlimit-upto cpu ctdir ctevents
ctexpire ctmask ctorigdst ctorigdstport ctorigsrc ctorigsrcport ctproto ctrepldst ctrepldstport
ctreplsrc ctreplsrcport ctstate ctstatus datestart datestop dccp-option dccp-types destination-port
destination-ports dir dport dports dscp dscp-class dst-group dst-len dst-opts dst-pfx dst-range
dst-type ecn-ip-ect espspi every expevents fragid fraglen from gateway gid-owner hash-init hashlimit
hashlimit-above hashlimit-burst hashlimit-dstmask hashlimit-htable-expire
hashlimit-htable-gcinterval hashlimit-htable-max hashlimit-htable-size hashlimit-mode
hashlimit-rate-interval hashlimit-srcmask hashlimit-upto hashmode hbh-len hbh-opts header hex-string
hitcount hl hl-dec hl-eq hl-gt hl-inc hl-lt hl-set hmark-dport hmark-dport-mask hmark-dst-prefix
hmark-mod hmark-offset hmark-proto-mask hmark-rnd hmark-spi hmark-spi-mask hmark-sport
hmark-sport-mask hmark-src-prefix hmark-tuple icmp-type icmpv6-type ipcompspi led-delay
led-trigger-id left-shift-mark length limit limit-burst local-node log log-level mac-source mark
mask mh-type mode monthdays mss nfacct-name nflog-group nflog-range nflog-size nflog-threshold
nfmask on-ip on-port or-mark or-tos packet packets-eq packets-gt packets-lt path pid-owner pkt-type
pkttype-type ports probability queue-balance queue-num quota rateest-ewmalog rateest-interval realm
reject-with reqid right-shift-mark rt-0-addrs rt-len rt-segsleft rt-type seconds set-class set-dscp
set-dscp-class set-mark set-mss set-tos set-xmark sid-owner source-port source-ports spi sport
sports src-group src-pfx src-range src-type srh-hdr-len-eq srh-hdr-len-gt srh-hdr-len-lt
srh-last-entry-eq srh-last-entry-gt srh-last-entry-lt srh-lsid srh-next-hdr srh-nsid srh-psid
srh-segs-left-eq srh-segs-left-gt srh-segs-left-lt srh-tag state strip-options tcp-flags tcp-option
timestart timestop to to-destination to-ports to-source tos total-nodes tproxy-mark ttl ttl-dec
ttl-eq ttl-gt ttl-inc ttl-lt ttl-set tunnel-dst tunnel-src type u32 uid-owner ulog-cprange
ulog-nlgroup ulog-prefix ulog-qthreshold vaddr vdir vmethod vport vportctl vproto weekdays wscale
xor-mark xor-tos zone zone-orig zone-reply
`

// nameOptions take one value, which iptables-save prints as it is (measured with 1.8.9, or
// read out of the module where this kernel has no match): with a blank it reads back as more
// words, with a quote it hides the rules behind it, and empty it is gone.
const nameOptions = `
cmd-owner genre hashlimit-name helper label name object-pinned oif physdev-in physdev-out rateest
rateest-name rateest1 rateest2 selctx timeout
`

// flagOptions take none.
const flagOptions = `
accept-local ahres alarm checksum-fill clamp-mss-to-pmtu compres connlimit-daddr connlimit-saddr
contiguous ecn ecn-tcp-remove exist fragfirst fraglast fragmore fragres hashlimit-rate-match icase
invert ipvs kerneltz led-always-blink limit-iface-in limit-iface-out localtz log-ip-options
log-macdecode log-tcp-options log-tcp-sequence log-uid loose map-mark map-prio map-queue next
notrack nowildcard persistent physdev-is-bridged physdev-is-in physdev-is-out queue-bypass
queue-cpu-fanout random random-fully rateest-bps rateest-bps1 rateest-bps2 rateest-delta
rateest-eq rateest-gt rateest-lt rateest-pps rateest-pps1 rateest-pps2 rcheck rdest reap remove
restore restore-mark restore-skmark return-nomatch rsource rt-0-not-strict rt-0-res rttl sack-perm
save save-mark socket-exists soft strict suppl-groups syn timestamp transparent update
update-counters update-subcounters utc validmark
`

// eitherOptions take one value in one module and none in another.
const eitherOptions = `
ecn-tcp-cwr ecn-tcp-ece
`
