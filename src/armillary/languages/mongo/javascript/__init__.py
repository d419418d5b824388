"""JavaScript in commands of MongoDB: `$where`, `$function`, `$accumulator` and mapReduce."""
