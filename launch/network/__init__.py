"""How ranks find each other and over what they talk: addresses, interfaces, stores."""
