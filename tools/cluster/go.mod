module github.com/seamark/seamark/tools/cluster

go 1.26.0
