package gitsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// Hash names a Git object.
type Hash = plumbing.Hash

const (
	uploadPack  = transport.UploadPackServiceName
	receivePack = transport.ReceivePackServiceName

	maxListing = 64 << 20 // bytes; about 800,000 refs
	maxReport  = 1 << 20
	maxWords   = 2 << 10 // of what a remote prints
)

// wire carries one conversation.
type wire interface {
	listing() io.Reader                              // begins with the listing of refs
	send(body io.Reader, n int64) (io.Reader, error) // delivers the one request; the answer
	words() string                                   // what the server said beside the protocol
	close()
}

// session is a conversation with one service of a remote: the listing, then
// at most one request. It ends when its context does, or after a silence.
type session struct {
	remote  *Remote
	service string
	ctx     context.Context
	cancel  context.CancelCauseFunc
	watch   *time.Timer
	wire    wire

	refs  map[string]Hash
	head  string // branch that HEAD names; "" if unknown
	caps  *capability.List
	heard tail // progress messages

	closed bool
}

// alive notes that the remote has done something.
func (s *session) alive() { s.watch.Reset(s.remote.opt.IdleTimeout) }

func (s *session) close() {
	if s.closed {
		return
	}
	s.closed = true
	s.watch.Reset(min(s.remote.opt.IdleTimeout, 5*time.Second)) // a farewell takes no longer
	if s.wire != nil {
		s.wire.close()
	}
	s.watch.Stop()
	s.cancel(nil)
}

// fail makes err fit to be shown: what was tried, with whom, why it ended.
func (s *session) fail(op string, err error) error {
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause
	} else if s.wire != nil {
		if errors.Is(err, errHungUp) {
			s.close() // and hear it out: what it says last may still be on its way
		}
		words := printable(s.wire.words(), maxWords)
		switch {
		case words != "" && errors.Is(err, errHungUp): // they say why
			err = fmt.Errorf("the remote says: %s", strings.ReplaceAll(words, "\n", "; "))
		case words != "":
			err = fmt.Errorf("%w: the remote says: %s", err, strings.ReplaceAll(words, "\n", "; "))
		}
	}
	return s.remote.scrub(fmt.Errorf("git %s %s: %w", op, s.remote, err))
}

func (s *session) readListing() error {
	adv := packp.NewAdvRefs()
	err := adv.Decode(io.LimitReader(s.wire.listing(), maxListing))
	var line *pktline.ErrorLine
	switch {
	case errors.As(err, &line):
		return fmt.Errorf("the remote says: %s", printable(line.Text, maxWords))
	case errors.Is(err, packp.ErrEmptyAdvRefs): // an empty repository
	case errors.Is(err, packp.ErrEmptyInput):
		return errHungUp
	case err != nil:
		return fmt.Errorf("read the listing of refs: %s", printable(err.Error(), maxWords))
	}
	// What go-git's decoders do not understand.
	transport.FilterUnsupportedCapabilities(adv.Capabilities)
	s.refs, s.caps = adv.References, adv.Capabilities
	for _, link := range adv.Capabilities.Get(capability.SymRef) {
		if target, ok := strings.CutPrefix(link, "HEAD:refs/heads/"); ok {
			s.head = target
		}
	}
	return nil
}

// branch is the listed tip of a branch; ErrNoBranch or ErrEmpty without one.
func (s *session) branch(name string) (Hash, error) {
	tip, ok := s.refs[branchRef(name)]
	switch {
	case ok:
		return tip, nil
	case len(s.refs) == 0:
		return tip, ErrEmpty
	}
	return tip, fmt.Errorf("branch %q: %w", name, ErrNoBranch)
}

func branchRef(name string) string { return "refs/heads/" + name }

// checkBranch refuses what is no branch name.
func checkBranch(name string) error {
	if err := plumbing.NewBranchReferenceName(name).Validate(); err != nil || name == "" || strings.HasPrefix(name, "-") {
		return fmt.Errorf("%q is not a branch name", name)
	}
	return nil
}

// wanted is what to ask of the upload-pack service.
type wanted struct {
	tip      Hash
	haves    []Hash
	shallows []Hash
	depth    int   // 0 is all that is not in haves
	filter   int64 // leave files larger than this at the remote; 0 is none
}

// fetchPack writes the pack that w asks for to out and returns the new shallow commits.
func (s *session) fetchPack(w wanted, out io.Writer) ([]Hash, error) {
	req := packp.NewUploadPackRequestFromCapabilities(s.caps)
	if s.caps.Supports(capability.Agent) {
		_ = req.Capabilities.Set(capability.Agent, userAgent)
	}
	req.Wants, req.Haves = []Hash{w.tip}, w.haves
	if s.caps.Supports(capability.Shallow) {
		req.Shallows, req.Depth = w.shallows, packp.DepthCommits(w.depth)
		_ = req.Capabilities.Set(capability.Shallow)
	}
	if w.filter > 0 && s.filters() {
		_ = req.Capabilities.Set(capability.Filter)
		// Git leaves out what has at least that size; we keep what has exactly it.
		req.Filter = packp.FilterBlobLimit(uint64(w.filter)+1, packp.BlobLimitPrefixNone)
	}
	var body bytes.Buffer
	if err := req.UploadRequest.Encode(&body); err != nil {
		return nil, err
	}
	if err := req.UploadHaves.Encode(&body, false); err != nil {
		return nil, err
	}
	if err := pktline.NewEncoder(&body).EncodeString("done\n"); err != nil {
		return nil, err
	}
	answer, err := s.wire.send(&body, int64(body.Len()))
	if err != nil {
		return nil, err
	}
	resp := packp.NewUploadPackResponse(req)
	if err := resp.Decode(io.NopCloser(answer)); err != nil {
		return nil, fmt.Errorf("read the answer: %s", printable(err.Error(), maxWords))
	}
	_, err = io.Copy(out, s.demux(resp, req.Capabilities))
	return resp.Shallows, err
}

// filters says whether the remote can leave large files out.
func (s *session) filters() bool { return s.caps.Supports(capability.Filter) }

// push moves branch from old to tip, if it still stands at old. A reason is
// the remote's no. An error leaves open whether the branch has moved.
func (s *session) push(branch string, old, tip Hash, pack []byte) (reason string, err error) {
	req := packp.NewReferenceUpdateRequestFromCapabilities(s.caps)
	if s.caps.Supports(capability.Agent) {
		_ = req.Capabilities.Set(capability.Agent, userAgent)
	}
	if s.caps.Supports(capability.Sideband64k) {
		_ = req.Capabilities.Set(capability.Sideband64k)
	}
	req.Commands = []*packp.Command{{Name: plumbing.ReferenceName(branchRef(branch)), Old: old, New: tip}}
	req.Packfile = io.NopCloser(bytes.NewReader(pack))
	var body bytes.Buffer
	if err := req.Encode(&body); err != nil {
		return "", err
	}
	crash.At(crash.Push, crash.Before)
	answer, err := s.wire.send(&body, int64(body.Len()))
	if err != nil {
		return "", err
	}
	crash.At(crash.Push, crash.Half)
	if !req.Capabilities.Supports(capability.ReportStatus) {
		return "", errors.New("the remote does not report the result of a push")
	}
	report := packp.NewReportStatus()
	if err := report.Decode(s.demux(io.LimitReader(answer, maxReport), req.Capabilities)); err != nil {
		return "", fmt.Errorf("read the report: %s", printable(err.Error(), maxWords))
	}
	crash.At(crash.Push, crash.After)
	if err := report.Error(); err != nil {
		return printable(err.Error(), maxWords), nil
	}
	return "", nil
}

// demux takes the data out of a multiplexed stream and keeps the messages.
func (s *session) demux(r io.Reader, caps *capability.List) io.Reader {
	kind := sideband.Sideband64k
	switch {
	case caps.Supports(capability.Sideband64k):
	case caps.Supports(capability.Sideband):
		kind = sideband.Sideband
	default:
		return r
	}
	d := sideband.NewDemuxer(kind, r)
	d.Progress = &s.heard
	return d
}

// output is what the remote printed, from both of its channels.
func (s *session) output() string {
	return s.remote.scrubText(printable(s.heard.String()+"\n"+s.wire.words(), maxWords))
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*maxWords {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-maxWords:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// touch tells a session of every step of a stream.
type touch struct {
	s *session
	r io.Reader
	w io.Writer
}

func (t touch) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.s.alive()
	return n, err
}

func (t touch) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.s.alive()
	return n, err
}
