"""What an operator does with a service from outside: look it over, keep it, bring it back."""
