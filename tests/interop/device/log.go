package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// A logHead is the signed size and root of a server's log (docs/wire-format/log.md).
type logHead struct {
	name string
	size uint64
	root []byte
}

type logProof struct {
	Head                                  string
	Index, Start                          uint64
	Inclusion, Peaks, Leaves, Consistency []byte
}

func readHead(signed string, key ed25519.PublicKey) logHead {
	body, signatures, isNote := strings.Cut(signed, "\n\n")
	lines := strings.Split(body, "\n")
	require(isNote && len(lines) == 3, "signature-invalid")
	head := logHead{name: lines[0]}
	var err error
	head.size, err = strconv.ParseUint(lines[1], 10, 62)
	require(err == nil, "signature-invalid")
	head.root, err = base64.StdEncoding.DecodeString(lines[2])
	require(err == nil && len(head.root) == 32, "signature-invalid")
	keyHash := sha256.Sum256(slices.Concat([]byte(head.name+"\n\x01"), key))
	for line := range strings.Lines(signatures) {
		encoded, isOurs := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "— "+head.name+" ")
		signature, err := base64.StdEncoding.DecodeString(encoded)
		if isOurs && err == nil && len(signature) == 68 && bytes.Equal(signature[:4], keyHash[:4]) &&
			ed25519.Verify(key, []byte(body+"\n"), signature[4:]) {
			return head
		}
	}
	refuse("signature-invalid")
	return head
}

func hashLeaf(entry []byte) []byte {
	hash := sha256.Sum256(slices.Concat([]byte{0}, entry))
	return hash[:]
}

func hashNode(left, right []byte) []byte {
	hash := sha256.Sum256(slices.Concat([]byte{1}, left, right))
	return hash[:]
}

func divide(hashes []byte) [][]byte {
	require(len(hashes)%32 == 0, "proof-invalid")
	return slices.Collect(slices.Chunk(hashes, 32))
}

// checkInclusion is the algorithm of RFC 9162, section 2.1.3.2.
func checkInclusion(index, size uint64, hash []byte, path [][]byte, root []byte) bool {
	if index >= size {
		return false
	}
	fn, sn := index, size-1
	for _, sibling := range path {
		if sn == 0 {
			return false
		}
		if fn&1 == 1 || fn == sn {
			hash = hashNode(sibling, hash)
			for fn&1 == 0 && fn != 0 {
				fn, sn = fn>>1, sn>>1
			}
		} else {
			hash = hashNode(hash, sibling)
		}
		fn, sn = fn>>1, sn>>1
	}
	return sn == 0 && bytes.Equal(hash, root)
}

// checkConsistency is the algorithm of RFC 9162, section 2.1.4.2.
func checkConsistency(first, second uint64, firstRoot, secondRoot []byte, path [][]byte) bool {
	if first == 0 || first > second {
		return first == 0 && len(path) == 0
	}
	if first == second {
		return len(path) == 0 && bytes.Equal(firstRoot, secondRoot)
	}
	if first&(first-1) == 0 {
		path = slices.Concat([][]byte{firstRoot}, path)
	}
	if len(path) == 0 {
		return false
	}
	fn, sn := first-1, second-1
	for fn&1 == 1 {
		fn, sn = fn>>1, sn>>1
	}
	old, all := path[0], path[0]
	for _, hash := range path[1:] {
		if sn == 0 {
			return false
		}
		if fn&1 == 1 || fn == sn {
			old, all = hashNode(hash, old), hashNode(hash, all)
			for fn&1 == 0 && fn != 0 {
				fn, sn = fn>>1, sn>>1
			}
		} else {
			all = hashNode(all, hash)
		}
		fn, sn = fn>>1, sn>>1
	}
	return sn == 0 && bytes.Equal(old, firstRoot) && bytes.Equal(all, secondRoot)
}

// A frontier has the roots of the complete subtrees over the leaves so far, the largest first.
type frontier struct {
	size  uint64
	peaks [][]byte
}

func (f *frontier) add(leaf []byte) {
	for size := f.size; size&1 == 1; size >>= 1 {
		last := len(f.peaks) - 1
		leaf = hashNode(f.peaks[last], leaf)
		f.peaks = f.peaks[:last]
	}
	f.peaks = append(f.peaks, leaf)
	f.size++
}

func (f *frontier) root() []byte {
	if len(f.peaks) == 0 {
		empty := sha256.Sum256(nil)
		return empty[:]
	}
	root := f.peaks[len(f.peaks)-1]
	for _, peak := range slices.Backward(f.peaks[:len(f.peaks)-1]) {
		root = hashNode(peak, root)
	}
	return root
}

// nextBlock is what to ask for if a proof begins after the last head; below 0 the proof is enough.
func nextBlock(proof logProof, last *logHead, isBlock bool) int64 {
	if last == nil || proof.Start <= last.size || isBlock {
		return -1
	}
	return int64(last.size / 32)
}

// checkProof checks that an entry is in the log, and that the log continues the last head; it returns the new head.
func checkProof(proof logProof, entry []byte, key ed25519.PublicKey, last *logHead, isBlock bool) logHead {
	head := readHead(proof.Head, key)
	if last != nil {
		require(head.name == last.name, "key-changed")
		require(head.size >= last.size, "log-rollback")
		require(head.size != last.size || bytes.Equal(head.root, last.root), "log-forked")
	}
	inclusion := divide(proof.Inclusion)
	require(checkInclusion(proof.Index, head.size, hashLeaf(entry), inclusion, head.root), "proof-invalid")
	require(proof.Start%32 == 0, "proof-invalid")
	blocks := (max(1, head.size) - 1) / 32
	require(isBlock || proof.Start <= 32*(max(1, blocks)-1), "proof-invalid")
	require(nextBlock(proof, last, false) < 0, "proof-invalid")
	tree := &frontier{proof.Start, divide(proof.Peaks)}
	require(len(tree.peaks) == bits.OnesCount64(proof.Start), "proof-invalid")
	leaves := divide(proof.Leaves)
	isForked, isReached := false, last == nil
	reach := func() {
		if last != nil && tree.size == last.size {
			isReached, isForked = true, !bytes.Equal(tree.root(), last.root)
		}
	}
	reach()
	for _, leaf := range leaves {
		tree.add(leaf)
		reach()
	}
	consistency := divide(proof.Consistency)
	require(checkConsistency(tree.size, head.size, tree.root(), head.root, consistency), "proof-invalid")
	require(isReached, "proof-invalid")
	require(!isForked, "log-forked")
	return head
}

func readProof(body []byte) (proof logProof) {
	require(json.Unmarshal(body, &proof) == nil, "proof-invalid")
	return proof
}
