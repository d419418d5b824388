module armillary/clients/gremlin-go

go 1.25.0

require github.com/apache/tinkerpop/gremlin-go/v3 v3.8.1

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/websocket v1.5.3 // indirect
	github.com/nicksnyder/go-i18n/v2 v2.5.0 // indirect
	golang.org/x/text v0.21.0 // indirect
)
