package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"attune/internal/fleet"
)

// commandLimit is how long a command may take, whatever progress it shows.
const commandLimit = 6 * time.Hour

// Commands hands commands to the workers of a class.
type Commands struct {
	Fleet   *fleet.Coordinator
	Class   string
	Setting Setting
}

// Do has a command done.
func (c *Commands) Do(ctx context.Context, one Command) (*Outcome, error) {
	j, err := fleet.NewJob(c.Class, KindCommand, command{c.Setting, one}, commandLimit)
	if err != nil {
		return nil, err
	}
	r, err := c.Fleet.Do(ctx, j)
	if err != nil {
		return nil, err
	}
	var found Outcome
	return &found, r.Decode(&found)
}

// Write writes the files of the record below a folder, and nowhere else.
func (o *Outcome) Write(ctx context.Context, objects fleet.Objects, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for name, hash := range o.Record {
		text, err := objects.Get(ctx, hash)
		if err != nil {
			return fmt.Errorf("%s of the record: %w", name, err)
		}
		local := filepath.FromSlash(name)
		if !filepath.IsLocal(local) {
			return fmt.Errorf("the record has a file %q", name)
		}
		if err := errors.Join(root.MkdirAll(path.Dir(name), 0o755), root.WriteFile(local, text, 0o644)); err != nil {
			return err
		}
	}
	return nil
}
