"""``python -m optax_varynorm.cli`` is ``varynorm``."""

from optax_varynorm.cli import main

if __name__ == "__main__":
    main()
