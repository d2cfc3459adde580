// Command dashboard writes the Grafana dashboard of the Helm chart. Command chart copies it
// for kustomize.
//
//	go run ./dashboard ../deploy/helm/seamark
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

// file is the dashboard in the chart.
const file = "files/dashboard.json"

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want the directory of the chart", len(args))
	}
	text, err := dashboard()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(args[0], file), text, 0o644)
}

// dashboard returns the dashboard in Grafana's JSON.
func dashboard() ([]byte, error) {
	var panels []any
	x, y, height := 0, 0, 0
	for _, r := range rows {
		y, x = y+height, 0
		panels = append(panels, object{"id": len(panels) + 1, "type": "row", "title": r.title, "collapsed": false,
			"gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}, "panels": []any{}})
		y, height = y+1, 0
		for _, p := range r.panels {
			width, high, kind := 8, 7, "timeseries"
			if r.stats {
				width, high, kind = 4, 4, "stat"
			}
			if x+width > 24 {
				x, y = 0, y+height
			}
			panels = append(panels, p.json(len(panels)+1, kind, object{"x": x, "y": y, "w": width, "h": high}))
			x, height = x+width, high
		}
	}

	all := object{
		"uid": "seamark", "title": "Seamark", "tags": []string{"dns", "seamark"},
		"schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1, "refresh": "30s", "timezone": "",
		"time":        object{"from": "now-1h", "to": "now"},
		"annotations": object{"list": []any{}},
		"templating": object{"list": []any{
			object{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
				"current": object{}, "hide": 0},
			variable("job", "Job", "label_values(seamark_build_info, job)"),
			variable("instance", "Instance", `label_values(seamark_build_info{job=~"$job"}, instance)`),
		}},
		"panels": panels,
	}

	text, err := json.MarshalIndent(all, "", " ")
	return append(text, '\n'), err
}

type object = map[string]any

var source = object{"type": "prometheus", "uid": "$datasource"}

// variable returns a variable with the values of a label.
func variable(name, label, query string) object {
	return object{"name": name, "label": label, "type": "query", "datasource": source,
		"query":   object{"query": query, "refId": name},
		"refresh": 2, "multi": true, "includeAll": true, "allValue": ".+",
		"current": object{"text": "All", "value": "$__all"}, "sort": 1}
}

func (p panel) json(id int, kind string, at object) object {
	var targets []any
	for i, q := range p.queries {
		targets = append(targets, object{"datasource": source, "expr": q.expression, "legendFormat": q.legend,
			"refId": string(rune('A' + i))})
	}
	defaults := object{"unit": p.unit, "min": 0}
	options := object{"legend": object{"displayMode": "list", "placement": "bottom"},
		"tooltip": object{"mode": "multi"}}
	if kind == "stat" {
		options = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value"}
		steps := []any{object{"color": "green", "value": nil}}
		if p.bad != 0 {
			steps = append(steps, object{"color": "red", "value": p.bad})
		}
		if p.good != 0 {
			steps = []any{object{"color": "red", "value": nil}, object{"color": "green", "value": p.good}}
		}
		defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
	}
	return object{"id": id, "type": kind, "title": p.title, "description": p.description, "datasource": source,
		"gridPos":     at,
		"fieldConfig": object{"defaults": defaults, "overrides": []any{}}, "options": options, "targets": targets}
}
