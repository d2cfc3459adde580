//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"net"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// runFixed runs the command "bench fixed": a program of tc at interfaces of pods turns each DNS query into the
// same reply, but for its ID. It is the lower bound for programs that answer there.
func runFixed(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("fixed", flag.ContinueOnError)
	interfaces := f.String("interfaces", "", "names, separated by commas")
	text := f.String("reply", "", "in hexadecimal")
	if err := f.Parse(args); err != nil {
		return err
	}
	reply, err := hex.DecodeString(*text)
	if err != nil {
		return fmt.Errorf("reply: %w", err)
	}

	program, err := ebpf.NewProgram(fixedProgram(reply))
	if err != nil {
		return fmt.Errorf("loading the program: %w", err)
	}
	defer program.Close()
	for name := range strings.SplitSeq(*interfaces, ",") {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: program, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return fmt.Errorf("attaching the program to %s: %w", name, err)
		}
		defer l.Close()
	}
	<-ctx.Done()
	return nil
}

// Offsets in a frame with a query over IPv4 without options, and in struct __sk_buff.
const (
	frameIP, frameUDP, frameDNS = 14, 34, 42

	skbIndex, skbData, skbEnd = 40, 76, 80
)

// fixedProgram returns a program that replies to UDP queries over IPv4 without IP options. Replies have no UDP
// checksum.
func fixedProgram(reply []byte) *ebpf.ProgramSpec {
	const skb, data, end, a, b, length = asm.R6, asm.R2, asm.R3, asm.R4, asm.R5, asm.R7
	native16 := func(n int) int32 {
		return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, uint16(n))))
	}
	size := frameDNS + len(reply)
	code := asm.Instructions{asm.Mov.Reg(skb, asm.R1)}
	add := func(more ...asm.Instruction) { code = append(code, more...) }
	readable := func(size int) {
		add(asm.LoadMem(data, skb, skbData, asm.Word), asm.LoadMem(end, skb, skbEnd, asm.Word),
			asm.Mov.Reg(a, data), asm.Add.Imm(a, int32(size)), asm.JGT.Reg(a, end, "pass"))
	}
	swap := func(x, y int16, size asm.Size) {
		add(asm.LoadMem(a, data, x, size), asm.LoadMem(b, data, y, size),
			asm.StoreMem(data, x, b, size), asm.StoreMem(data, y, a, size))
	}

	readable(frameDNS + 2)
	add(asm.LoadMem(a, data, 12, asm.Half), asm.JNE.Imm(a, native16(0x0800), "pass"),
		asm.LoadMem(a, data, frameIP, asm.Byte), asm.JNE.Imm(a, 0x45, "pass"),
		asm.LoadMem(a, data, frameIP+9, asm.Byte), asm.JNE.Imm(a, 17, "pass"),
		asm.LoadMem(a, data, frameUDP+2, asm.Half), asm.JNE.Imm(a, native16(53), "pass"))

	add(asm.Mov.Reg(asm.R1, skb), asm.Mov.Imm(asm.R2, int32(size)), asm.Mov.Imm(asm.R3, 0),
		asm.FnSkbChangeTail.Call(), asm.JNE.Imm(asm.R0, 0, "pass"))

	readable(size)
	swap(0, 6, asm.Word)
	swap(4, 10, asm.Half)
	swap(frameIP+12, frameIP+16, asm.Word)
	swap(frameUDP, frameUDP+2, asm.Half)
	add(asm.LoadMem(length, data, frameIP+2, asm.Half),
		asm.StoreImm(data, frameIP+2, int64(native16(size-frameIP)), asm.Half),
		asm.StoreImm(data, frameUDP+4, int64(native16(size-frameUDP)), asm.Half),
		asm.StoreImm(data, frameUDP+6, 0, asm.Half))
	for i := 2; i < len(reply); i++ { // the ID is the query's
		add(asm.StoreImm(data, int16(frameDNS+i), int64(reply[i]), asm.Byte))
	}

	add(asm.Mov.Reg(asm.R1, skb), asm.Mov.Imm(asm.R2, frameIP+10), asm.Mov.Reg(asm.R3, length),
		asm.Mov.Imm(asm.R4, native16(size-frameIP)), asm.Mov.Imm(asm.R5, 2), asm.FnL3CsumReplace.Call(),
		asm.LoadMem(asm.R1, skb, skbIndex, asm.Word), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return())
	add(asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), asm.Return())
	return &ebpf.ProgramSpec{Name: "fixed", Type: ebpf.SchedCLS, Instructions: code, License: "Apache-2.0"}
}
