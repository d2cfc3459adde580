package nftables

import (
	"encoding/binary"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passes bounds the transactions of one Add. A pass fails as a whole if an element is there that was not
// expected, or is not there that was; other processes may change that again.
const passes = 4

// A job is an element that is not written yet.
type job struct {
	index   int  // of the element
	replace bool // it is there, with too short a time left
}

// Add adds elements, at most MaxElements and none twice. All of them are in their sets when it returns,
// unless they have a Problem. It blocks while the kernel has other transactions.
func (k *Kernel) Add(elements []Element) []Result {
	k.mu.Lock()
	defer k.mu.Unlock()

	result := make([]Result, len(elements))
	jobs := make([]job, 0, len(elements))
	for i, e := range elements {
		result[i].Left = e.Timeout
		if !e.Renew {
			jobs = append(jobs, job{index: i})
		} else if present, left := k.look(e); left < e.Need {
			jobs = append(jobs, job{i, present})
		} else {
			result[i].Left = left
		}
	}

	for range passes {
		if jobs = k.pass(elements, jobs, result); len(jobs) == 0 {
			return result
		}
	}
	for _, j := range jobs {
		result[j.index].Problem = problemOf(unix.EAGAIN)
	}
	return result
}

// pass writes elements in one transaction. It returns those that have to be written again since the
// transaction has failed, and notes the problems of the others.
func (k *Kernel) pass(elements []Element, jobs []job, result []Result) (again []job) {
	if len(jobs) == 0 {
		return nil
	}
	added, removed, err := k.transaction(elements, jobs)
	if err != 0 {
		for _, j := range jobs {
			result[j.index].Problem = explain(err)
		}
		return nil
	}

	failed := false
	for i, j := range jobs {
		failed = failed || added[i] != 0 || removed[i] != 0
		switch {
		case added[i] == unix.EEXIST:
			if present, left := k.look(elements[j.index]); left < elements[j.index].Need {
				again = append(again, job{j.index, present})
			} else {
				result[j.index].Left = left
			}
		case added[i] != 0:
			result[j.index].Problem = explain(added[i])
		case removed[i] == unix.ENOENT: // it has ended
			again = append(again, job{index: j.index})
		case removed[i] != 0:
			result[j.index].Problem = explain(removed[i])
		default: // the kernel has undone it, if another one has failed
			again = append(again, j)
		}
	}
	if !failed {
		return nil
	}
	return again
}

// transaction sends the messages that add elements, and returns the errors of the kernel about each.
func (k *Kernel) transaction(elements []Element, jobs []job) (added, removed []syscall.Errno, err syscall.Errno) {
	var b buffer
	begin := k.seq + 1
	b.bound(unix.NFNL_MSG_BATCH_BEGIN, begin)
	for i, j := range jobs {
		e, seq := elements[j.index], begin+1+2*uint32(i)
		if j.replace {
			b.nft(unix.NFT_MSG_DELSETELEM, 0, seq, families[e.Set.Family], e.write(0))
		}
		b.nft(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE|unix.NLM_F_EXCL, seq+1, families[e.Set.Family], e.write(e.Timeout))
	}
	k.seq = begin + 1 + 2*uint32(len(jobs))
	b.bound(unix.NFNL_MSG_BATCH_END, k.seq)

	added, removed = make([]syscall.Errno, len(jobs)), make([]syscall.Errno, len(jobs))
	var whole syscall.Errno // about the transaction
	err = k.exchange(b, func(h unix.NlMsghdr, rest []byte) {
		if h.Type != unix.NLMSG_ERROR {
			return
		}
		switch at := h.Seq - begin - 1; { // a message of before has a large one
		case h.Seq == begin || h.Seq == k.seq:
			whole = errno(rest)
		case at >= 2*uint32(len(jobs)):
		case at%2 == 0:
			removed[at/2] = errno(rest)
		default:
			added[at/2] = errno(rest)
		}
	})
	if err == 0 {
		err = whole
	}
	return added, removed, err
}

// look reports whether an element is in its set, and for how long it stays there.
func (k *Kernel) look(e Element) (present bool, left time.Duration) {
	k.seq++
	var b buffer
	b.nft(unix.NFT_MSG_GETSETELEM, 0, k.seq, families[e.Set.Family], e.write(0))
	err := k.exchange(b, func(h unix.NlMsghdr, rest []byte) {
		if h.Seq == k.seq && h.Type != unix.NLMSG_ERROR && len(rest) >= 4 {
			present, left = true, expiration(rest[4:])
		}
	})
	if err != 0 {
		return false, 0
	}
	return present, left
}

// expiration returns the time that the element of a reply has left; MaxTimeout if it has no timeout.
func expiration(reply []byte) time.Duration {
	left := MaxTimeout
	attributes(reply, func(kind uint16, list []byte) {
		if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		attributes(list, func(_ uint16, element []byte) {
			attributes(element, func(kind uint16, value []byte) {
				if kind == unix.NFTA_SET_ELEM_EXPIRATION && len(value) == 8 {
					left = min(left, time.Duration(min(binary.BigEndian.Uint64(value), maxMilliseconds))*time.Millisecond)
				}
			})
		})
	})
	return left
}

// maxMilliseconds is MaxTimeout as nftables has it.
const maxMilliseconds = uint64(MaxTimeout / time.Millisecond)

// write returns a function that appends the attributes of a message about the element; without a timeout
// if that is 0.
func (e *Element) write(timeout time.Duration) func(*buffer) {
	var key []byte
	if e.Client.IsValid() {
		key = append(key, e.Client.AsSlice()...)
	}
	key = append(key, e.IP.AsSlice()...)

	return func(b *buffer) {
		b.text(unix.NFTA_SET_ELEM_LIST_TABLE, e.Set.Table)
		b.text(unix.NFTA_SET_ELEM_LIST_SET, e.Set.Name)
		b.nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(b *buffer) {
			b.nested(unix.NFTA_LIST_ELEM, func(b *buffer) {
				b.nested(unix.NFTA_SET_ELEM_KEY, func(b *buffer) { b.bytes(unix.NFTA_DATA_VALUE, key) })
				if timeout > 0 {
					b.uint64(unix.NFTA_SET_ELEM_TIMEOUT, milliseconds(timeout))
				}
			})
		})
	}
}
