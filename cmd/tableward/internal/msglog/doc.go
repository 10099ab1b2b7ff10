// SPDX-License-Identifier: Apache-2.0

// Package msglog reads message logs, replays them in virtual time, and writes the
// transcript: every block of restore input, every answer, and what the tables hold in the
// end. Equal logs give equal transcripts, byte for byte.
//
// A log is JSON lines. The first line says how the runtime is set up and what the kernel
// holds; each other line is a message or something that happens to the kernel, with its
// time. The format is strict, so that a slip in a log does not silently test something
// else: an unknown field, a wrong type or a message with two bodies is an [Error] with its
// line and column. A message that the runtime would refuse is no slip: its answer is part
// of the transcript.
//
// A rule of a kernel chain has its place by "at":"top", "near" or "bottom", or by an anchor:
// "before" or "after" with {"chain":"NAME"}, the first rule that jumps there, or with
// {"comment":"TEXT"}, the first rule with that comment.
//
//	log, err := msglog.Parse(file)
//	transcript, err := msglog.Replay(log)
//	os.Stdout.Write(transcript.AppendJSON(nil))
package msglog
