package nodecache

import "github.com/seamark/seamark/corefile"

// SelectCapture sets Capture to the value of the directive capture, if the Corefile has it.
// given reports whether the flag is on the command line: then both must be equal. The server
// reports the errors of a Corefile that is invalid, and of an invalid value.
func (f *Flags) SelectCapture(given bool) error {
	file, err := f.source()
	if err != nil {
		return nil
	}
	if file == "" {
		file = f.Base
	}
	d, err := CaptureIn(corefile.Read(file).Servers)
	switch {
	case err != nil:
		return err
	case d == nil:
	case given && f.Capture != d.Args[0].Text:
		return d.Errorf("want %s, the value of the flag -capture, got %s: give one of the two, or the same value",
			f.Capture, d.Args[0].Text)
	default:
		f.Capture = d.Args[0].Text
	}
	return nil
}

// CaptureIn returns the directive capture of server blocks, or nil if there is none with a
// valid value. It returns an error if two have different values.
func CaptureIn(servers []corefile.Server) (found *corefile.Directive, err error) {
	for _, s := range servers {
		for _, d := range s.Directives {
			switch {
			case d.Text != "capture" || len(d.Args) != 1 || !isCapture(d.Args[0].Text):
			case found == nil:
				found = &d
			case found.Args[0].Text != d.Args[0].Text:
				return nil, d.Errorf("want %s as at %s:%d, got %s",
					found.Args[0].Text, found.File, found.Line, d.Args[0].Text)
			}
		}
	}
	return found, nil
}

// isCapture reports whether text is a value of the directive.
func isCapture(text string) bool {
	switch text {
	case CaptureAuto, CaptureTCX, CaptureClsact, CaptureAddress, CaptureNone:
		return true
	}
	return false
}
