package web

import (
	"context"
	"html/template"
	"net/http"
	"time"

	"attune/internal/document"
	"attune/internal/fleet"
)

// fleetLimit is how long a page waits for the state of the fleet: a server on a full disk does not answer.
const fleetLimit = 3 * time.Second

// fleetPage is the state of the fleet whose server this is.
type fleetPage struct {
	Served bool // attune serve has --fleet
	Server string
	Body   template.HTML
}

// fleetPage shows classes, workers, queues and dead letters. Its script asks for the part again.
func (s *Server) fleetPage(w http.ResponseWriter, r *http.Request) error {
	var page fleetPage
	part := "layout.html"
	if s.config.Fleet != nil {
		state, err := s.fleetState(r)
		if err != nil {
			return err
		}
		page.Served, page.Server = true, state.Server
		if page.Body, err = body(document.FleetStatus(state)); err != nil {
			return err
		}
		if r.URL.Query().Get("part") == "live" {
			part = "live"
		}
	}
	return s.renderPart(w, r, http.StatusOK, "fleet", part, "Fleet", page)
}

// apiFleet returns the document of attune fleet status.
func (s *Server) apiFleet(w http.ResponseWriter, r *http.Request) error {
	if s.config.Fleet == nil {
		return failure(http.StatusNotFound, "this is not the server of a fleet; attune serve --fleet 127.0.0.1:4222 is one")
	}
	state, err := s.fleetState(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, state)
	return nil
}

func (s *Server) fleetState(r *http.Request) (*fleet.Status, error) {
	ctx, cancel := context.WithTimeout(r.Context(), fleetLimit)
	defer cancel()
	state, err := s.config.Fleet(ctx)
	if err != nil {
		return nil, failure(http.StatusServiceUnavailable, "the fleet does not answer: %v", err)
	}
	return state, nil
}
